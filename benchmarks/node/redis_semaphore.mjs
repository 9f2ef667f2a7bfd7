// redis-semaphore of npm: `redis_semaphore.mjs URL`. See benchmarks/src/redis/peer.rs for the requests.

import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'

const require = createRequire(`${process.env.SEMAFOR_BENCH_NODE_DIR}/`)
const { Semaphore } = require('redis-semaphore')
const { Redis } = require('ioredis')

const SLOTS = 10
const AT_ONCE = 100
const PERIOD = 10 // a waiter looks so often, in milliseconds

const redis = new Redis(process.argv[2])

// An object is one acquisition at a time.
function permit(name, slots) {
  return new Semaphore(redis, `npm-${name}`, slots, { acquireTimeout: Number.POSITIVE_INFINITY })
}

const now = () => Number(process.hrtime.bigint()) / 1e3

const works = {
  async cycle(count) {
    const micros = []
    for (let turn = 0; turn < count; turn++) {
      const start = now()
      const one = permit('cycle', SLOTS)
      await one.acquire()
      await one.release()
      micros.push(now() - start)
    }
    return micros
  },

  async handoff(count) {
    const micros = []
    let held = permit('handoff', 1)
    await held.acquire()
    for (let turn = 0; turn < count; turn++) {
      const next = permit('handoff', 1)
      const granted = next.acquire().then(now)
      // There is no line that could be read. Releases come at moments spread evenly over a polling period.
      await sleep(5 * PERIOD + (PERIOD * (turn + 0.5)) / count)
      const start = now()
      await held.release()
      micros.push((await granted) - start)
      held = next
    }
    await held.release()
    return micros
  },

  async contend(contenders, cycles) {
    const contender = async () => {
      for (let cycle = 0; cycle < cycles; cycle++) {
        const one = permit('contended', SLOTS)
        await one.acquire()
        await one.release()
      }
    }
    const start = now()
    await Promise.all(Array.from({ length: contenders }, contender))
    return [(now() - start) / (contenders * cycles)]
  },

  async wait(count) {
    await permit('idle-waiters', 1).acquire()
    for (let waiter = 0; waiter < count; waiter++) {
      permit('idle-waiters', 1).acquire()
    }
    return 0
  },

  async hold(count) {
    for (let first = 0; first < count; first += AT_ONCE) {
      const length = Math.min(AT_ONCE, count - first)
      await Promise.all(Array.from({ length }, () => permit('idle-holders', count).acquire()))
    }
    return 0
  },
}

const answer = (value) => console.log(JSON.stringify(value))

answer({ ok: `redis-semaphore (npm, Node ${process.versions.node.split('.')[0]})` })
for await (const line of createInterface({ input: process.stdin })) {
  const [work, ...counts] = line.split(' ')
  answer({ ok: await works[work](...counts.map(Number)) })
}
process.exit()
