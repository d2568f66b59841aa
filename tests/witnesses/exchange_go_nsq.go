// Publish with go-nsq's Producer, read with its Consumer through the registry.
//
// Arguments: nsqd, nsqlookupd, count, the layer as JSON. Exits once its standard input is closed.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/nsqio/go-nsq"
)

const (
	topic   = "exchange"
	channel = "go_nsq"
	batch   = 100
	// patience is the suite's deadline, DEADLINE_S of tests/harness/waiting.py.
	patience = 60 * time.Second
)

type layer struct {
	TLS        bool   `json:"tls_v1"`
	Deflate    bool   `json:"deflate"`
	Snappy     bool   `json:"snappy"`
	AuthSecret string `json:"auth_secret"`
	Authority  string `json:"authority"`
	Poison     string `json:"poison"`
}

type report struct {
	Stored   int `json:"stored"`
	Received int `json:"received"`
	Most     int `json:"most"`
}

// reader counts deliveries. Only one goroutine calls HandleMessage.
type reader struct {
	poison   string
	expected int
	failures int
	poisoned int
	received map[string]int
	done     chan struct{}
}

func (r *reader) HandleMessage(message *nsq.Message) error {
	body := string(message.Body)
	if body == r.poison {
		r.poisoned++
		message.RequeueWithoutBackoff(0)
	} else {
		r.received[body]++
	}
	if len(r.received) == r.expected && r.poisoned == r.failures && r.done != nil {
		close(r.done)
		r.done = nil
	}
	return nil
}

func configured(asked layer) *nsq.Config {
	config := nsq.NewConfig()
	options := map[string]any{"max_in_flight": 100, "deflate": asked.Deflate, "snappy": asked.Snappy}
	if asked.TLS {
		options["tls_v1"] = true
		options["tls_root_ca_file"] = asked.Authority
	}
	if asked.AuthSecret != "" {
		options["auth_secret"] = asked.AuthSecret
	}
	for name, value := range options {
		must(config.Set(name, value))
	}
	// The client's defaults are too short for a loaded machine.
	config.DialTimeout = patience
	config.WriteTimeout = patience
	return config
}

// publish sends the first half of the bodies one by one, without waiting between them, and the others in batches.
// It returns how many messages the broker stored.
func publish(producer *nsq.Producer, bodies [][]byte) int {
	half := len(bodies) / 2
	answers := make(chan *nsq.ProducerTransaction, half)
	for _, body := range bodies[:half] {
		must(producer.PublishAsync(topic, body, answers))
	}
	stored := 0
	for range bodies[:half] {
		must((<-answers).Error)
		stored++
	}
	for start := half; start < len(bodies); start += batch {
		end := min(start+batch, len(bodies))
		must(producer.MultiPublish(topic, bodies[start:end]))
		stored += end - start
	}
	return stored
}

// awaitTopic waits until the registry knows the topic, which the broker registers in the background.
func awaitTopic(nsqlookupd string) {
	client := &http.Client{Timeout: patience}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		answer, err := client.Get(fmt.Sprintf("http://%s/lookup?topic=%s", nsqlookupd, topic))
		must(err)
		answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return
		}
	}
	log.Fatalf("the registry did not know topic %s within %s", topic, patience)
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	nsqd, nsqlookupd := os.Args[1], os.Args[2]
	count, err := strconv.Atoi(os.Args[3])
	must(err)
	var asked layer
	must(json.Unmarshal([]byte(os.Args[4]), &asked))
	config := configured(asked)
	bodies := make([][]byte, count)
	for number := range bodies {
		bodies[number] = []byte(fmt.Sprintf("message %d", number))
	}

	producer, err := nsq.NewProducer(nsqd, config)
	must(err)
	stored := publish(producer, bodies)
	awaitTopic(nsqlookupd)

	read := &reader{poison: asked.Poison, expected: count, received: map[string]int{}, done: make(chan struct{})}
	if asked.Poison != "" {
		read.expected, read.failures = count-1, 3
	}
	all := read.done
	consumer, err := nsq.NewConsumer(topic, channel, config)
	must(err)
	consumer.AddHandler(read)
	must(consumer.ConnectToNSQLookupd(nsqlookupd))
	<-all
	_, err = io.ReadAll(os.Stdin) // until the broker's clients have been looked at
	must(err)
	consumer.Stop() // sends the last FIN or REQ
	<-consumer.StopChan
	producer.Stop()

	most := 0
	for _, deliveries := range read.received {
		most = max(most, deliveries)
	}
	must(json.NewEncoder(os.Stdout).Encode(report{stored, len(read.received), most}))
}
