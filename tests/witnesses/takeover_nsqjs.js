// Publish and consume with nsqjs while the members of a pair take over from each other.
//
// Arguments: the topic, both addresses. Prints the lines of takeover_report.py. A Writer has one address and does not
// connect again, so the script changes to the other address when it loses a connection.

const nsq = require('nsqjs')

const [topic, ...addresses] = process.argv.slice(2)
let number = 0
let ended = false

function connect(turn) {
  if (ended) return
  const [host, port] = addresses[turn % addresses.length].split(':')
  const writer = new nsq.Writer(host, Number(port))
  let isLost = false
  function lose(error) {
    if (isLost) return
    isLost = true
    console.log(`failed ${error}`)
    setTimeout(() => connect(turn + 1), 100)
  }
  function publish() {
    if (ended || isLost) return
    const body = `message ${number++}`
    writer.publish(topic, body, (error) => {
      if (error) return lose(error)
      console.log(`acknowledged ${body}`)
      setTimeout(publish, 5)
    })
  }
  writer.on('error', lose)
  writer.on('closed', () => lose('closed'))
  writer.on('ready', publish)
  writer.connect()
}

const reader = new nsq.Reader(topic, 'c', {nsqdTCPAddresses: addresses, maxInFlight: 100, lookupdPollInterval: 1})
reader.on('error', () => {})
reader.on('message', (message) => {
  console.log(`received ${message.body.toString()}`)
  message.finish()
})
reader.connect()
connect(0)
process.stdin.on('end', () => {
  ended = true
  process.exit(0)
})
process.stdin.resume()
