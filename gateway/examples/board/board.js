/**
 * A fleet, live, from the room of this site's project. Nothing but fetch, WebSocket and the DOM.
 *
 * `room.json` beside this file says where the room is: `heliograph site deploy DIR --room room.json` publishes it. The
 * token in it is a capability that visitors are meant to have. So anybody can write to the room as well: what comes is
 * checked, counted, and put on the page as text.
 */

const ROOM = "room.json";
const SAMPLES_MAX = 30; // of a node, on its line: as wide as the picture
const NODES_MAX = 64; // on the board; what others say is passed over
const QUIET_MS = 10_000; // without a sample; then a node is shown as quiet
const SILENT_MS = 45_000; // without a frame, when nodes speak every few seconds; then the link is taken for dead
const FIRST_WAIT_MS = 500; // before coming back, doubled each time, and each time a random part of it
const LONGEST_WAIT_MS = 30_000;
const GONE = 4410; // the room has ended, or the project was booked another one
const FOR_GOOD = new Set([1009, 4400, 4401, 4403]); // coming back would change nothing

// ---- the board -----------------------------------------------------------------------------------------------------

const list = document.getElementById("nodes");
const template = document.getElementById("node");
const nodes = new Map(); // by name

/** What a node said, or null if it is nothing of the kind. */
function read(data) {
  const { node, site = "", cpu_pct: cpu, mem_pct: memory, load_1m: load } = data ?? {};
  const isText = (text, max) => typeof text === "string" && text.length <= max;
  if (!isText(node, 64) || node === "" || !isText(site, 64)) return null;
  if (![cpu, memory, load].every(Number.isFinite)) return null;
  return { node, site, cpu: Math.min(100, Math.max(0, cpu)), memory, load };
}

function take(sample) {
  const node = nodes.get(sample.node) ?? add(sample.node);
  if (node === null) return;
  node.samples = [...node.samples, sample.cpu].slice(-SAMPLES_MAX);
  node.heardAt = Date.now();
  node.show(sample);
}

function add(name) {
  if (nodes.size >= NODES_MAX) return null;
  const card = template.content.cloneNode(true).firstElementChild;
  const part = (selector) => card.querySelector(selector);
  const node = { card, samples: [], heardAt: 0 };
  node.show = ({ site, cpu, memory, load }) => {
    part(".site").textContent = site;
    part("output").textContent = cpu.toFixed(1);
    part(".memory").textContent = `${Math.round(memory)} %`;
    part(".load").textContent = load.toFixed(2);
    part("time").textContent = new Date(node.heardAt).toLocaleTimeString();
    const line = points(node.samples);
    part("polyline").setAttribute("points", line);
    part("polygon").setAttribute("points", `${line} ${SAMPLES_MAX},20 ${SAMPLES_MAX - node.samples.length + 1},20`);
    card.classList.remove("quiet");
  };
  part("h2").textContent = card.dataset.node = name;
  nodes.set(name, node);
  const after = [...nodes.keys()].sort((a, b) => a.localeCompare(b)).indexOf(name);
  list.insertBefore(card, list.children[after] ?? null);
  document.getElementById("nothing").hidden = true;
  return node;
}

/** The newest sample at the right edge. */
function points(samples) {
  const first = SAMPLES_MAX - samples.length + 1;
  return samples.map((cpu, at) => `${first + at},${(19 - (cpu / 100) * 18).toFixed(1)}`).join(" ");
}

setInterval(() => {
  for (const { card, heardAt } of nodes.values()) card.classList.toggle("quiet", Date.now() - heardAt > QUIET_MS);
}, 1000);

function tell(state, text) {
  const link = document.getElementById("link");
  link.dataset.state = state;
  if (link.textContent !== text) link.textContent = text; // it is read aloud when it changes
}

// ---- the room ------------------------------------------------------------------------------------------------------

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** Where the room is, asked anew each time: `project book` gives the project another one. */
async function whereIsTheRoom() {
  const answer = await fetch(ROOM, { cache: "no-store" });
  if (!answer.ok) throw new Error(`${ROOM} is ${answer.status}`);
  const { websocket_url: url } = await answer.json();
  return new URL(url).href;
}

/** One connection, until it closes: with its code, and whether it was one at all. */
function listen(url, memory) {
  const address = new URL(url);
  address.searchParams.set("presence", "0");
  if (memory.epoch) {
    address.searchParams.set("epoch", memory.epoch);
    address.searchParams.set("since", memory.seq);
  }
  return new Promise((done) => {
    const socket = new WebSocket(address, "echo.v1.json");
    let wasOpen = false;
    let watch = setTimeout(() => socket.close(), SILENT_MS);
    socket.onmessage = ({ data }) => {
      clearTimeout(watch);
      watch = setTimeout(() => socket.close(), SILENT_MS);
      const frame = JSON.parse(data);
      if (frame.type === "welcome") {
        wasOpen = true;
        memory.epoch = frame.epoch;
        if (!frame.recovered) memory.seq = frame.seq;
        tell("live", "live");
      } else if (frame.type === "msg") {
        memory.seq = frame.seq;
        const sample = read(frame.data);
        if (sample !== null) take(sample);
      }
    };
    socket.onclose = ({ code }) => {
      clearTimeout(watch);
      done({ code, wasOpen });
    };
  });
}

async function follow() {
  let url = null;
  let ended = null; // the room that is over, if one is
  let memory = {}; // of the room: what a connection needs to be given what it missed
  for (let attempts = 0; ; attempts += 1) {
    try {
      const now = await whereIsTheRoom();
      if (now !== url) [url, memory] = [now, {}];
      if (url !== ended) {
        const { code, wasOpen } = await listen(url, memory);
        if (FOR_GOOD.has(code)) {
          tell("over", `the room does not take this page (${code})`);
          return;
        }
        if (code === GONE) ended = url;
        if (wasOpen) attempts = 0;
      }
      tell("lost", url === ended ? "the room has ended; looking for another" : "connection lost; trying again");
    } catch {
      tell("lost", "the board does not know its room; trying again");
    }
    await pause(Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** attempts) * (0.5 + Math.random() / 2));
  }
}

follow();
