// BullMQ at its best for this job: one job per batch of 25, the calls of a batch in parallel, one UPDATE per batch.
// argv: processes, batches at a time per process. NODE_PATH is no help to ES modules: the folder comes by environment.
import { fork } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

const require = createRequire(process.env.JOB_MODULES + '/')
const { Queue, Worker } = require('bullmq')
const pg = require('pg')
const { Pool } = require('undici')

const BATCH = 25
const [processes, concurrency] = process.argv.slice(2, 4).map(Number)
const redis = new URL(process.env.JOB_REDIS_URL)
const connection = {
  host: redis.hostname, port: Number(redis.port), password: decodeURIComponent(redis.password),
  maxRetriesPerRequest: null
}
const count = Number(process.env.JOB_COUNT)

async function work () {
  const sink = new URL(process.env.JOB_SINK_URL)
  const http = new Pool(sink.origin, { connections: concurrency * BATCH, pipelining: 1 })
  const postgres = new pg.Pool({ connectionString: process.env.JOB_DATABASE_URL, max: concurrency })
  const template = process.env.JOB_TEXT.split(/\{\{ (\w+) \}\}/)
  const headers = { authorization: 'Bearer t', 'content-type': 'application/json' }

  async function deliver ({ address, params }) {
    const text = template.map((part, i) => i % 2 ? params[part] : part).join('')
    const body = JSON.stringify({
      from: 'news@example.com', to: [address], subject: `For ${params.name}`, bodyType: 'text', body: text,
      encoding: 'utf-8', priority: 'normal', tag: randomUUID()
    })
    const answer = await http.request({ method: 'POST', path: sink.pathname, headers, body })
    if (answer.statusCode !== 201) throw new Error(`answered ${answer.statusCode}`)
    return (await answer.body.json()).messages[0].msgId
  }

  const worker = new Worker('job', async ({ data }) => {
    const { rows } = await postgres.query({
      name: 'read', text: 'SELECT id, address, params FROM job WHERE id BETWEEN $1 AND $2', values: [data.first, data.last]
    })
    const refs = await Promise.all(rows.map(deliver))
    await postgres.query({
      name: 'mark',
      text: "UPDATE job SET status = 'sent', ref = r.ref, sent_at = clock_timestamp() " +
            'FROM unnest($1::int[], $2::text[]) AS r (id, ref) WHERE job.id = r.id',
      values: [rows.map(row => row.id), refs]
    })
  }, { connection, concurrency, removeOnComplete: { count: 0 } })
  worker.on('failed', (_job, error) => { console.error(error); process.exit(1) })
  await worker.waitUntilReady()
}

async function enqueue (queue, from, to) {
  const jobs = []
  for (let first = from; first <= to; first += BATCH) {
    jobs.push({ name: 'batch', data: { first, last: Math.min(first + BATCH - 1, to) } })
  }
  for (let at = 0; at < jobs.length; at += 200) await queue.addBulk(jobs.slice(at, at + 200))
}

if (process.argv[4] === 'worker') {
  await work()
  process.send('ready')
} else {
  const started = Array.from({ length: processes }, () => fork(process.argv[1], [...process.argv.slice(2, 4), 'worker']))
  started.forEach(child => child.on('exit', code => process.exit(code ?? 1)))
  await Promise.all(started.map(child => new Promise(resolve => child.once('message', resolve))))
  const queue = new Queue('job', { connection })
  await queue.waitUntilReady()
  await enqueue(queue, count + 1, count + Number(process.env.JOB_WARM_UP))
  const postgres = new pg.Client({ connectionString: process.env.JOB_DATABASE_URL })
  await postgres.connect()
  const left = "SELECT FROM job WHERE id > $1 AND status <> 'sent' LIMIT 1"
  while ((await postgres.query(left, [count])).rowCount) await new Promise(resolve => setTimeout(resolve, 50))
  await postgres.end()
  console.log('READY')
  await new Promise(resolve => createInterface(process.stdin).once('line', resolve))
  await enqueue(queue, 1, count)
}
