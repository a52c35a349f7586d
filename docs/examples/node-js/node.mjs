// A Heliograph node: an echo, and the metrics of this machine.   node node.mjs FOLDER ws://GATEWAY:8421/devices/connect
// FOLDER holds an identity (Appendix G) of `heliograph node enroll` or `heliograph node check`; the journal is kept there too.
// § and Appendix point into docs/reference/device-wire.md, from which alone this was written. It does not renew (Appendix F).
import { createHash, createPrivateKey, randomBytes, randomUUID, sign, X509Certificate } from 'node:crypto'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { blake3 } from '@noble/hashes/blake3'
import WebSocket from 'ws'

const FRAME_BYTES_MAX = 128 * 1024 // §2.2; a larger frame of the gateway ends the session
const OUTCOMES_MAX = 10_000 // kept, §7.3; beyond, those that ended first are forgotten
const RESULTS_MAX = 50 // outcomes that `resume` reports with their results; if there are more, all go without
const PAGE_OUTCOMES = 400 // in one `resume` frame; further ones go into the next
const RUNNING_MAX = 100, CADENCES_MAX = 16 // at once; the next one is refused
const UNSENT_BYTES_MAX = 1024 * 1024 // of a gateway that stops reading: the connection is dropped
const SILENCE_MS_MAX = 60_000 // without a frame of the gateway: the connection is dropped
const MANIFEST_LIFE_MS = 86_400_000 // §3; a fresh one is announced after 40 % of it
const HANDLER_MS_MAX = 2000 // `deadline_ms_default`: a handler that has run for so long is stopped
const [folder, url] = process.argv.slice(2)
if (!url) throw new Error('usage: node node.mjs FOLDER ws://GATEWAY:8421/devices/connect')
const say = (...words) => console.log(new Date().toISOString(), ...words)
const isObject = value => typeof value === 'object' && value !== null && !Array.isArray(value)
const isId = value => typeof value === 'string' && /^[0-9A-HJKMNP-TV-Z]{26}$/.test(value)
const isIdOrNull = value => value === null || isId(value)
const isCount = value => Number.isInteger(value) && value >= 0
const isEmpty = object => Object.keys(object).length === 0
const refusal = (code, begun) => ({ ok: false, begun, error: { code, message: 'no', suggested_fix: 'see the code' } })
function ulid() {
  const digits = '0123456789ABCDEFGHJKMNPQRSTVWXYZ', now = Date.now()
  const time = Array.from({ length: 10 }, (_, place) => digits[Math.floor(now / 32 ** (9 - place)) % 32])
  return time.join('') + Array.from(randomBytes(16), byte => digits[byte % 32]).join('')
}
// §5.2: Node's monotonic clock stands still while the machine sleeps. Its uptime goes on but is coarser: the larger one counts.
const instant = () => ({ fine: performance.now(), boot: os.uptime() * 1000 })
const since = start => Math.max(performance.now() - start.fine, os.uptime() * 1000 - start.boot)

// ---- Identity and manifest: Appendix A and G
const read = name => fs.readFileSync(path.join(folder, name))
const token = () => read('token').toString().trim() // read at each login: there may be a newer one
const leaf = read('node.crt'), kid = createHash('sha256').update(leaf).digest('hex')
const node_id = /^CN=([0-9a-z]{26})$/m.exec(new X509Certificate(leaf).subject)[1]
const pkcs8 = Buffer.from('302e020100300506032b657004220420' + read('node.key').toString().trim(), 'hex') // prefix and seed
const key = createPrivateKey({ key: pkcs8, format: 'der', type: 'pkcs8' })
const blake3Hex = text => Buffer.from(blake3(Buffer.from(text))).toString('hex')
function canonical(value) { // RFC 8785: members sorted by name; for all else JSON.stringify has the right form
  if (Array.isArray(value)) return `[${value.map(canonical)}]`
  if (!isObject(value)) return JSON.stringify(value)
  return `{${Object.keys(value).sort().map(name => `${JSON.stringify(name)}:${canonical(value[name])}`)}}`
}
function signManifest(nowMs) {
  const machine = fs.existsSync('/etc/machine-id') ? fs.readFileSync('/etc/machine-id', 'ascii').trim() : os.hostname()
  const constraints = { rate_limit_rps: 10, max_concurrency: 4, deadline_ms_default: HANDLER_MS_MAX }, safety_class = 'read_only'
  const capability = (cap_id, schema, ...verbs) =>
    ({ cap_id, kind: `system.${cap_id}`, schema_ref: `mcp://schemas/${schema}@1.0.0`, verbs, safety_class, constraints })
  const manifest = {
    manifest_version: '1.1.0', node_id, issued_at_ms: nowMs, expires_at_ms: nowMs + MANIFEST_LIFE_MS,
    hw_fingerprint: { algo: 'blake3-256', value: blake3Hex(machine), sources: ['machine_id'] },
    node_attestation: { alg: 'Ed25519', kid, sig: '', payload_hash: '' },
    capabilities: [
      capability('echo', 'system.echo.invoke.input', 'invoke'),
      capability('metrics', 'system.metrics', 'snapshot', 'subscribe'),
    ],
  }
  const signedForm = canonical(manifest)
  manifest.node_attestation.payload_hash = blake3Hex(signedForm)
  manifest.node_attestation.sig = sign(null, Buffer.from(signedForm), key).toString('base64url')
  return { manifest, etag: blake3Hex(canonical(manifest)) }
}

// ---- Tools: Appendix C
function measure() {
  const cores = os.cpus().map(core => core.times), sum = times => times.reduce((total, time) => total + time, 0)
  const { type, bsize, blocks, bavail } = fs.statfsSync('/')
  return {
    cores: cores.length || 1, idle: sum(cores.map(times => times.idle)), spent: sum(cores.flatMap(times => Object.values(times))),
    load: os.loadavg(), mem: { total_bytes: os.totalmem(), available_bytes: os.freemem() },
    disk: { mount: '/', fs_type: `0x${type.toString(16)}`, total_bytes: blocks * bsize, available_bytes: bavail * bsize },
  }
}
const cpuPct = (before, after) =>
  Math.min(100, Math.max(0, 100 * (1 - (after.idle - before.idle) / Math.max(1, after.spent - before.spent))))
const GROUPS = ['cpu', 'mem', 'load', 'uptime', 'disk']
const tools = {
  [`sysecho.${node_id}.echo.invoke`]: {
    accepts: ({ message, ...rest }) => isEmpty(rest) && typeof message === 'string' && /^[\x20-\x7e]{0,1024}$/.test(message),
    run: async ({ message }) => ({ message, received_at_ms: Date.now(), node_id }),
  },
  [`sys.${node_id}.metrics.snapshot`]: {
    accepts: ({ include = GROUPS, ...rest }) => isEmpty(rest) && Array.isArray(include) &&
      new Set(include).size === include.length && include.every(group => GROUPS.includes(group)),
    run: async ({ include = GROUPS }, signal) => {
      const before = measure()
      if (include.includes('cpu')) await delay(100, null, { signal }) // its usage is what happens between two moments
      const { mem, disk, cores, load: [one, five, fifteen], ...times } = measure()
      const groups = { cpu: { cores, usage_pct: cpuPct(before, times) }, mem, load: { one, five, fifteen }, disk: [disk] }
      for (const group in groups) if (!include.includes(group)) delete groups[group]
      return { ts_ms: Date.now(), node_id, uptime_s: Math.floor(os.uptime()), ...groups }
    },
  },
  [`sys.${node_id}.metrics.subscribe`]: {
    accepts: ({ interval_ms: every = 5000, ...rest }) => isEmpty(rest) && isCount(every) && every >= 1000 && every <= 60_000,
    frames: (before = measure()) => () => { // one cadence: each call makes its next frame
      const { mem, disk, load: [load_1m, load_5m, load_15m], ...times } = measure(), cpu_pct = cpuPct(before, times)
      before = times
      const mem_total_bytes = mem.total_bytes, mem_bytes = mem.total_bytes - mem.available_bytes, ts_ms = Date.now()
      const disk_pct = 100 * (1 - disk.available_bytes / Math.max(1, disk.total_bytes))
      return { ts_ms, node_id, cpu_pct, mem_bytes, mem_total_bytes, disk_pct, load_1m, load_5m, load_15m }
    },
  },
}

// ---- The journal: §7.3. One small file, replaced as a whole: after a crash there is the old one or the new one
class Journal {
  file = path.join(folder, 'journal.json')
  constructor() {
    const kept = fs.existsSync(this.file) ? JSON.parse(fs.readFileSync(this.file, 'utf8')) : { log_id: null, commands: [] }
    Object.assign(this, kept, { commands: new Map(kept.commands) }) // msg_id → outcome as it is reported, null while it runs
    for (const [id, outcome] of this.commands) if (outcome === null) this.commands.set(id, { interrupted: true })
  }
  save() {
    const { log_id, journal_id, last_cmd } = this, withoutResults = (name, value) => name === 'result' ? undefined : value
    const fd = fs.openSync(this.file + '.new', 'w', 0o600), place = fs.openSync(folder, 'r')
    fs.writeFileSync(fd, JSON.stringify({ log_id, journal_id, last_cmd, commands: [...this.commands] }, withoutResults))
    fs.fsyncSync(fd)
    fs.renameSync(this.file + '.new', this.file)
    fs.fsyncSync(place) // now the new name is on disk, too
    for (const open of [fd, place]) fs.closeSync(open)
  }
  belongTo(log_id) { // another command log than before: a new journal, and nobody to report to what still runs
    if (this.log_id === log_id) return
    running.clear()
    Object.assign(this, { log_id, journal_id: randomUUID(), last_cmd: null, commands: new Map() }).save()
  }
  isPast(id) { return this.last_cmd !== null && id <= this.last_cmd }
  ended() { return [...this.commands].filter(([, outcome]) => outcome !== null) }
  write(id, outcome) { // on disk when this returns: before a command begins (D1), before its ack is sent (D2)
    this.commands.set(id, outcome)
    if (!this.isPast(id)) this.last_cmd = id
    if (this.commands.size > OUTCOMES_MAX) this.commands.delete(this.ended()[0]?.[0])
    this.save()
  }
  confirm(through) { // the gateway has recorded these for good: they can be forgotten
    const confirmed = this.ended().filter(([id]) => through !== null && id <= through)
    for (const [id] of confirmed) this.commands.delete(id)
    if (confirmed.length > 0) this.save()
  }
}
const journal = new Journal(), running = new Map() // msg_id → the AbortController of its handler

// ---- Running commands: they outlive the session that brought them
async function execute(id, tool, args) {
  const stop = new AbortController(), timer = setTimeout(() => stop.abort('E_DEADLINE_EXCEEDED'), HANDLER_MS_MAX)
  running.set(id, stop)
  const failed = () => refusal(stop.signal.reason ?? 'E_INTERNAL', true)
  const outcome = await tool.run(args, stop.signal).then(result => ({ ok: true, result }), failed)
  clearTimeout(timer)
  if (!running.delete(id)) return // the journal is one for another log by now
  journal.write(id, outcome)
  session.ack(id) // the session that is open by now
}

// ---- One session: §2
const FRAMES = { // of the gateway: the stages at which each is in order (§2.4), and what is relied on in its payload
  auth_ok: [['auth'], ({ log_id, now_ms, heartbeat_ms }) => isId(log_id) && isCount(now_ms) && isCount(heartbeat_ms - 1)],
  announce_ack: [['announce', 'live'], isObject],
  error: [['announce', 'live'], isObject],
  resume_ok: [['resume'], payload => isIdOrNull(payload.confirmed_through)],
  heartbeat_ack: [['announce', 'resume', 'live'], payload => isCount(payload.now_ms) && isIdOrNull(payload.confirmed_through)],
  cmd: [['resume', 'live'], payload => isObject(payload.arguments) && isCount(payload.deadline_at_ms)],
  cmd_cancel: [['resume', 'live'], isObject],
}
class Session {
  stage = 'auth'
  cadences = new Map() // msg_id of the subscribe → its timer; they end with the session (D0)
  heartbeats = [] // not answered yet: [when it was sent, msg_id]
  run() { // until the connection ends; gives the close code
    const options = { maxPayload: FRAME_BYTES_MAX, perMessageDeflate: false, handshakeTimeout: 10_000 }
    this.socket = new WebSocket(url, 'node-wire.v2', { ...options, headers: { 'User-Agent': 'heliograph-node-js/1.0' } })
    this.silence = setTimeout(() => this.socket.terminate(), SILENCE_MS_MAX)
    this.socket.on('open', () => {
      this.clock = { at: instant() }
      this.send('auth', { token: token(), node_id })
    })
    this.socket.on('message', (data, isBinary) => this.receive(data, isBinary))
    this.socket.on('error', problem => say('connection:', problem.code ?? problem.message))
    return new Promise(resolve => this.socket.on('close', code => {
      for (const timer of [this.silence, this.beat, this.again, ...this.cadences.values()]) clearTimeout(timer)
      this.stage = 'closed'
      resolve(code)
    }))
  }
  send(type, payload, in_reply_to) {
    const msg_id = ulid()
    if (this.socket.bufferedAmount > UNSENT_BYTES_MAX) this.socket.terminate()
    else this.socket.send(JSON.stringify({ type, msg_id, in_reply_to, payload }))
    return msg_id
  }
  receive(data, isBinary) {
    this.silence.refresh()
    let frame = null
    try { if (!isBinary) frame = JSON.parse(data) } catch { /* not JSON: a bad frame */ }
    const { type, msg_id, payload } = frame ?? {}, [stages, fits] = Object.hasOwn(FRAMES, type) ? FRAMES[type] : [[]]
    if (stages.includes(this.stage) && isId(msg_id) && isObject(payload) && fits(payload)) return this[type](payload, frame)
    this.stage = 'closed' // a bad frame: nothing after it counts
    this.socket.close(4400, 'bad_frame')
  }
  nowMs() { return Math.ceil(this.clock.nowMs + since(this.clock.at)) } // the gateway's clock is not ahead of this (§5.2)
  auth_ok({ log_id, now_ms, heartbeat_ms }) {
    this.clock.nowMs = now_ms
    journal.belongTo(log_id)
    this.beat = setInterval(() => this.heartbeat(), heartbeat_ms)
    this.stage = 'announce'
    this.announce()
  }
  announce() {
    this.signed = signManifest(this.nowMs())
    this.announcing = true
    this.send('announce', this.signed.manifest)
  }
  announce_ack() {
    this.announcing = false
    if (this.stage === 'announce') this.resume()
  }
  error({ code, retry_after_ms }) { // the manifest was refused; after the third time the gateway closes with 4422
    say('manifest refused:', /^E_[A-Z_]{1,30}$/.test(code) ? code : 'no code')
    this.again = setTimeout(() => this.announce(), isCount(retry_after_ms) ? retry_after_ms : 1000)
  }
  resume() {
    const { journal_id, last_cmd } = journal, ended = journal.ended(), withResults = ended.length <= RESULTS_MAX
    const outcomes = ended.map(([in_reply_to, { result, ...outcome }]) =>
      ({ in_reply_to, ...(outcome.ok && { begun: true, result: withResults ? result : undefined }), ...outcome }))
    this.stage = 'resume'
    this.reported = new Set(ended.map(([id]) => id)) // what ends later is acked once the session is live
    do {
      const page = outcomes.splice(0, PAGE_OUTCOMES), more = outcomes.length > 0
      this.send('resume', { journal_id, last_cmd, outcomes: page, running: [...running.keys()], more })
    } while (outcomes.length > 0)
  }
  resume_ok({ confirmed_through }) {
    this.stage = 'live'
    say('live')
    for (const [id] of journal.ended()) if (!this.reported.has(id)) this.ack(id)
    journal.confirm(confirmed_through)
  }
  heartbeat() {
    const isOld = this.nowMs() - this.signed.manifest.issued_at_ms > 0.4 * MANIFEST_LIFE_MS
    if (isOld && this.stage === 'live' && !this.announcing) this.announce()
    this.heartbeats.push([instant(), this.send('heartbeat', { manifest_etag: this.signed.etag })]) // in this order
  }
  heartbeat_ack({ manifest_etag, now_ms, confirmed_through }, { in_reply_to }) {
    const which = Math.max(0, this.heartbeats.findIndex(([, id]) => id === in_reply_to)) // if unknown, the earliest is safe
    const answered = this.heartbeats.splice(0, which + 1).pop()
    if (answered) this.clock = { nowMs: now_ms, at: answered[0] }
    journal.confirm(confirmed_through)
    if (this.stage === 'live' && manifest_etag !== this.signed.etag && !this.announcing) this.announce()
  }
  cmd({ tool: name, arguments: args, deadline_at_ms }, { msg_id: id }) { // begun or refused at once: no command ever waits
    const tool = Object.hasOwn(tools, name) ? tools[name] : {}
    if (tool.frames ? this.stage !== 'live' || this.cadences.has(id) : journal.isPast(id)) return // D1
    const isFull = tool.frames ? this.cadences.size >= CADENCES_MAX : running.size >= RUNNING_MAX
    const code = !tool.accepts ? 'E_MANIFEST_NOT_FOUND'
      : !tool.accepts(args) ? 'E_MANIFEST_INVALID'
      : this.nowMs() >= deadline_at_ms ? 'E_DEADLINE_EXCEEDED' // D3
      : isFull ? 'E_RATE_LIMITED' : null
    if (tool.frames) return this.subscribe(id, tool.frames(), args.interval_ms ?? 5000, code)
    journal.write(id, code === null ? null : refusal(code, false))
    if (code === null && this.nowMs() < deadline_at_ms) return execute(id, tool, args)
    if (code === null) journal.write(id, refusal('E_DEADLINE_EXCEEDED', false)) // the disk took too long
    this.ack(id)
  }
  ack(id) { if (this.stage === 'live') this.send('cmd_ack', journal.commands.get(id), id) }
  subscribe(id, nextFrame, interval_ms, code) { // §6: in no journal
    this.send('cmd_ack', code === null ? { ok: true, result: {} } : refusal(code, false), id)
    const tick = () => this.socket.bufferedAmount === 0 && this.send('telemetry', nextFrame(), id)
    if (code === null) this.cadences.set(id, setInterval(tick, interval_ms))
  }
  cmd_cancel(_, { in_reply_to: id }) {
    clearInterval(this.cadences.get(id))
    this.cadences.delete(id)
    running.get(id)?.abort('E_INTERNAL')
  }
}

// ---- One session after another, by the close codes of §2.5
let session
const leave = async () => { session.socket.close(1000); await delay(200); process.exit(0) }
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, leave)
for (let failures = 0; ;) {
  const tried = token()
  session = new Session()
  const code = await session.run()
  say('closed with', code)
  if (code === 4403 || code === 4422) process.exit(1) // until a person has changed something, it would be refused again
  failures = session.reported ? 0 : failures + 1
  const backoff = Math.random() * Math.min(60_000, 1000 * 2 ** failures)
  await delay(code === 4409 ? 30_000 + backoff : backoff)
  while (code === 4401 && token() === tried) await delay(2000) // until there is a new one
}
