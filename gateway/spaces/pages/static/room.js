/**
 * A connection to the room of an echo space that comes back by itself, with what it missed. For any page.
 *
 *     const room = new Room("https://echo.example", token, { uid: "ada", self: true });
 *     room.addEventListener("msg", ({ detail }) => console.log(detail.uid, detail.data));
 *     room.open();
 *     const { delivered } = await room.send({ text: "hello" }, { sub: "lobby" });
 *
 * Events, each with `detail`: `link` ({ state, code }), every frame of the server by its type (`welcome`, `msg`, `join`,
 * `leave`, `state`, `who`, `error`). What the messages mean is left to the page. So is sealing: see seal.js.
 *
 * In a space with IAM: `accessToken` is an async function that gives the access token (none: the link is closed, 4401);
 * `authenticate` shows the next one, before the first has ended.
 *
 * A message of this page whose ack was lost with the link comes back among what was missed, if it has arrived: its
 * `conn` is that of an earlier `welcome`. Those with an ack do not.
 */

/** What `link` says. After `gone` and after `closed` the room does not come back. */
export const Link = Object.freeze({
  CONNECTING: "connecting",
  OPEN: "open",
  LOST: "lost", // and trying again
  CLOSED: "closed", // by us, or for a reason that trying again does not change
  GONE: "gone", // the space is over
});

const GONE = 4410;
const FOR_GOOD = new Set([1009, 4400, 4401, 4403]); // what was sent, or who we are, has to change first
const FIRST_WAIT_MS = 500; // doubled each time, and each time a random part of it
const LONGEST_WAIT_MS = 30_000;
const STEADY_MS = 10_000; // a link that lasted so long was a good one: the waits begin anew
const QUIET_MS = 30_000; // without a frame; then a ping
const DEAD_MS = 10_000; // without an answer to it; then the link is lost
const SUBS_MAX = 32; // of a connection; the room takes no more

export class Room extends EventTarget {
  #origin;
  #token;
  #options;
  #subs;
  #socket = null;
  #epoch = null;
  #seq = null; // of the last message that we know of
  #attempts = 0;
  #openedAt = 0;
  #timer = null;
  #watch = null;
  #waiting = new Map(); // messages without an ack yet
  #lastId = 0;
  #state = null;

  /** `options`: `uid`, `subs`, `self` (get own messages too), `presence` (true unless said otherwise), `accessToken`. */
  constructor(origin, token, options = {}) {
    super();
    this.#origin = origin;
    this.#token = token;
    this.#options = options;
    this.#subs = new Set(options.subs);
  }

  get state() {
    return this.#state;
  }

  get subs() {
    return [...this.#subs];
  }

  open() {
    if (this.#socket === null && this.#timer === null) this.#connect();
  }

  /** Leave, for good. */
  close() {
    this.#end(Link.CLOSED, 1000);
  }

  /**
   * Send a message: to all, to a subspace (`sub`), to one `uid` (`tuid`), or to those of it in the subspace. Resolves
   * with the server's ack; rejects if the server refuses it, or the link is lost before it has answered.
   */
  send(data, { sub, tuid, self } = {}) {
    const id = String(++this.#lastId);
    return new Promise((resolve, reject) => {
      if (!this.#say({ type: "msg", data, sub, tuid, self, id })) {
        reject(new Error("There is no connection to the room at the moment."));
        return;
      }
      this.#waiting.set(id, { resolve, reject });
    });
  }

  /** Enter subspaces, now and whenever the link comes back. */
  join(...subs) {
    const all = new Set([...this.#subs, ...subs]);
    if (all.size > SUBS_MAX) throw new Error(`A connection can be in ${SUBS_MAX} subspaces at most.`);
    this.#subs = all;
    this.#say({ type: "join", subs });
  }

  leave(...subs) {
    for (const sub of subs) this.#subs.delete(sub);
    this.#say({ type: "leave", subs });
  }

  /** The answer comes as an event. */
  who() {
    this.#say({ type: "who" });
  }

  setState(data) {
    this.#say({ type: "state", data });
  }

  /** With a new access token, the link outlives the one that it was opened with. */
  authenticate(accessToken) {
    this.#say({ type: "auth", access_token: accessToken });
  }

  #say(frame) {
    if (this.#state !== Link.OPEN) return false;
    this.#socket.send(JSON.stringify(frame));
    return true;
  }

  #connect() {
    this.#timer = null;
    this.#tell(this.#attempts === 0 ? Link.CONNECTING : Link.LOST);
    const socket = new WebSocket(this.#address(), "echo.v1.json");
    this.#socket = socket;
    this.#listen();
    if (this.#options.accessToken) socket.onopen = () => this.#showToken(socket);
    socket.onmessage = ({ data }) => this.#take(JSON.parse(data));
    socket.onclose = ({ code }) => {
      if (this.#socket === socket) this.#lost(code);
    };
  }

  async #showToken(socket) {
    try {
      const token = await this.#options.accessToken();
      if (this.#socket !== socket) return; // lost meanwhile
      if (token === undefined) this.#end(Link.CLOSED, 4401);
      else socket.send(JSON.stringify({ type: "auth", access_token: token }));
    } catch {
      socket.close(); // there is none at the moment: as if the link were lost
    }
  }

  #address() {
    const url = new URL(`/ws/s/${this.#token}`, this.#origin);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    const { uid, self, presence } = this.#options;
    const query = { uid, self: self ? 1 : 0, presence: presence === false ? 0 : 1 };
    if (this.#subs.size) query.subs = this.subs.join(",");
    if (this.#epoch !== null) Object.assign(query, { since: this.#seq, epoch: this.#epoch });
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined) url.searchParams.set(name, value);
    }
    return url;
  }

  #take(frame) {
    this.#listen();
    switch (frame.type) {
      case "welcome":
        if (!frame.recovered) this.#seq = frame.seq;
        this.#epoch = frame.epoch;
        this.#options = { ...this.#options, uid: frame.uid };
        this.#openedAt = performance.now();
        this.#tell(Link.OPEN);
        break;
      case "msg":
        this.#seq = frame.seq;
        break;
      case "ack": // what came before it has come already
        this.#seq = frame.seq;
        this.#settle(frame.id)?.resolve(frame);
        return;
      case "error":
        this.#settle(frame.id)?.reject(Object.assign(new Error(frame.message), { frame }));
        break;
      case "pong":
        return;
    }
    this.dispatchEvent(new CustomEvent(frame.type, { detail: frame }));
  }

  #settle(id) {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    return waiting;
  }

  /** Browsers do not tell of the server's pings, so silence is asked about. */
  #listen() {
    clearTimeout(this.#watch);
    this.#watch = setTimeout(() => {
      this.#say({ type: "ping" });
      this.#watch = setTimeout(() => {
        const dead = this.#socket;
        this.#lost(1006);
        dead?.close();
      }, DEAD_MS);
    }, QUIET_MS);
  }

  #lost(code) {
    if (code === GONE) {
      this.#end(Link.GONE, code);
    } else if (FOR_GOOD.has(code)) {
      this.#end(Link.CLOSED, code);
    } else {
      const wasSteady = this.#state === Link.OPEN && performance.now() - this.#openedAt >= STEADY_MS;
      this.#attempts = wasSteady ? 1 : this.#attempts + 1;
      this.#drop();
      this.#tell(Link.LOST, code);
      const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** (this.#attempts - 1));
      this.#timer = setTimeout(() => this.#comeBack(), wait * (0.5 + Math.random() / 2));
    }
  }

  /** Browsers do not see why an upgrade was refused, but that of an ended space has to be told apart. */
  async #comeBack() {
    const timer = this.#timer;
    const url = new URL(`/api/s/${this.#token}/iam`, this.#origin); // which needs no access token
    const status = await fetch(url, { method: "HEAD", signal: AbortSignal.timeout(DEAD_MS) }).then(
      (answer) => answer.status,
      () => null,
    );
    if (this.#timer !== timer) return; // closed meanwhile
    if (status === 404) this.#end(Link.GONE, GONE);
    else if (status === null || status >= 500 || status === 429) this.#lost(1006);
    else this.#connect();
  }

  #end(state, code) {
    const socket = this.#socket;
    this.#drop();
    socket?.close();
    this.#tell(state, code);
  }

  #drop() {
    clearTimeout(this.#timer);
    clearTimeout(this.#watch);
    this.#timer = this.#socket = null;
    for (const { reject } of this.#waiting.values()) {
      reject(new Error("The connection was lost. Whether the message arrived is not known."));
    }
    this.#waiting.clear();
  }

  #tell(state, code = null) {
    if (state === this.#state) return;
    this.#state = state;
    this.dispatchEvent(new CustomEvent("link", { detail: { state, code } }));
  }
}
