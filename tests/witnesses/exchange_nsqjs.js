// Publish with nsqjs's Writer, read with its Reader through the registry.
//
// Arguments: nsqd, nsqlookupd, count, what stands between as JSON.

const fs = require('fs')
const nsq = require('nsqjs')

const [nsqd, nsqlookupd, number, asked] = process.argv.slice(2)
const count = Number(number)
const layer = JSON.parse(asked)
const options = {deflate: layer.deflate, snappy: layer.snappy, tls: layer.tls_v1}
if (layer.tls_v1) options.ca = fs.readFileSync(layer.authority)
if (layer.auth_secret) options.authSecret = layer.auth_secret

const bodies = Array.from({length: count}, (_, index) => Buffer.from(`message ${index}`))
const received = new Map()
let stored = 0
let poisoned = 0

function fail(error) {
  console.error(error)
  process.exit(1)
}

function publish(writer, body, messages) {
  return new Promise((resolve, reject) => {
    writer.publish('exchange', body, (error) => {
      if (error) return reject(error)
      stored += messages
      resolve()
    })
  })
}

async function isKnown() {
  const answer = await fetch(`http://${nsqlookupd}/lookup?topic=exchange`)
  return answer.status === 200
}

async function publishAll(writer) {
  await Promise.all(bodies.slice(0, count / 2).map((body) => publish(writer, body, 1)))
  for (let start = count / 2; start < count; start += 100) {
    await publish(writer, bodies.slice(start, start + 100), 100)
  }
  const deadline = Date.now() + 10000
  while (Date.now() < deadline && !(await isKnown())) {
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

function read(writer) {
  const reader = new nsq.Reader('exchange', 'nsqjs', {
    lookupdHTTPAddresses: [`http://${nsqlookupd}`],
    maxInFlight: 100,
    ...options,
  })
  reader.on('error', fail)
  reader.on('message', (message) => {
    const body = message.body.toString()
    if (body === layer.poison) {
      poisoned += 1
      message.requeue(0, false)
    } else {
      received.set(body, (received.get(body) || 0) + 1)
      message.finish()
    }
    if (received.size === count - (layer.poison ? 1 : 0) && poisoned === (layer.poison ? 3 : 0)) {
      // After the last FIN has gone out.
      setTimeout(() => {
        console.log(JSON.stringify({stored, received: received.size, most: Math.max(...received.values())}))
        reader.close()
        writer.close()
        process.exit(0)
      }, 100)
    }
  })
  reader.connect()
}

const [host, port] = nsqd.split(':')
const writer = new nsq.Writer(host, Number(port), options)
writer.on('error', fail)
writer.on('ready', () => publishAll(writer).then(() => read(writer), fail))
writer.connect()
