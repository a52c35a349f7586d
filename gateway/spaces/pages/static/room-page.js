/** The room's page: joins its parts, and has what belongs to none of them: the link's state, the end, the claim. */

import { addressOf, ask, token } from "./api.js";
import { attempt, button, byId, make, notify, sizeText } from "./dom.js";
import { Files } from "./files.js";
import { MessageLog } from "./messages.js";
import { People } from "./people.js";
import { Link, Room } from "./room.js";
import { WS_KID } from "./seal.js";
import { Values } from "./values.js";
import { Vault } from "./vault.js";

const REFRESH_MS = 10_000; // of values, files and the end, which nobody tells us of
const AROUND_BYTES = 512; // of a frame, for all but what it says; a larger frame would cost us the connection
const { space } = document.documentElement.dataset;
const stored = (name) => `echo.${name}.${space}`;

const vault = new Vault(byId("encryption-key")?.textContent);
const values = new Values(vault);
const files = new Files();
const log = new MessageLog(byId("messages"), read);
const people = new People(byId("people"), byId("names"), writeTo);
const mine = new Set(); // connections of this page, past ones too
let room = null;
let isBack = false; // whether the next welcome is one after a lost link

// ---- the room --------------------------------------------------------------------------------------------------------

const STATES = {
  [Link.CONNECTING]: "connecting …",
  [Link.OPEN]: "live",
  [Link.LOST]: "connection lost, trying again …",
  [Link.CLOSED]: "not connected",
  [Link.GONE]: "over",
};
const CLOSES = {
  1009: "The last message was too large, and the room closed the connection. Reload the page to come back.",
  4400: "The room did not understand this page and closed the connection. Reload the page to come back.",
};

function enter(uid) {
  const before = room;
  isBack = false;
  room = new Room(location.origin, token, { uid, subs: before?.subs });
  before?.close(); // what becomes of its link is no news any more
  const here = room;
  here.addEventListener("link", ({ detail }) => here === room && showLink(detail));
  here.addEventListener("welcome", ({ detail }) => welcome(detail));
  here.addEventListener("msg", ({ detail }) => log.add(detail, mine.has(detail.conn)));
  here.addEventListener("error", ({ detail }) => detail.id === undefined && notify(detail.message, true));
  people.follow(here);
  here.open();
}

function showLink({ state, code }) {
  document.documentElement.dataset.link = state === Link.CLOSED ? Link.LOST : state;
  byId("link-state").textContent = STATES[state];
  if (state === Link.GONE) showEnd();
  if (state === Link.CLOSED) notify(CLOSES[code] ?? "The room closed the connection.", true);
}

function welcome({ uid, conn, expires_at, recovered }) {
  if (isBack) {
    notify(recovered ? "Connected again." : "Connected again. Messages sent meanwhile may be missing.");
  }
  isBack = true;
  mine.add(conn);
  byId("my-uid").textContent = uid;
  sessionStorage.setItem(stored("uid"), uid);
  setEnd(expires_at);
  refresh();
}

function showEnd() {
  byId("over").hidden = false;
  for (const control of document.querySelectorAll("main :is(button, input, select, textarea):not(.copy)")) {
    control.disabled = true;
  }
}

async function refresh() {
  if (document.hidden || room.state !== Link.OPEN) return;
  await attempt(() => Promise.all([values.refresh(), files.refresh(), refreshEnd()]));
}

// ---- messages --------------------------------------------------------------------------------------------------------

/** What a message says: data of our own form, or of any. */
async function read({ data, bin }) {
  if (!vault.isOn) return data === undefined ? { note: `binary, in base64: ${bin}` } : { text: textOf(data) };
  const { text, note } = await vault.open(WS_KID, data ?? atob(bin));
  return note === undefined ? { text: textOf(parsed(text) ?? text) } : { note };
}

function textOf(data) {
  if (typeof data === "string") return data;
  const isText = data !== null && typeof data === "object" && Object.keys(data).join() === "text";
  return isText && typeof data.text === "string" ? data.text : JSON.stringify(data, null, 1);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

async function send() {
  const to = { room: {}, sub: { sub: byId("target").value }, uid: { tuid: byId("target").value } }[byId("to").value];
  const written = byId("text").value;
  const json = /^\s*[[{]/.test(written) ? parsed(written) : undefined;
  const plain = json === undefined ? { text: written } : json;
  const data = vault.isOn ? await vault.seal(WS_KID, JSON.stringify(plain)) : plain;
  const bytesMax = Number(byId("text").dataset.bytesMax);
  if (new Blob([JSON.stringify(data)]).size > bytesMax - AROUND_BYTES) {
    throw new Error(`This is longer than a message may be: ${sizeText(bytesMax)}. Share it as a file.`);
  }
  const { delivered } = await room.send(data, to);
  log.add({ uid: byId("my-uid").textContent, at: new Date().toISOString(), data, ...to }, true);
  byId("text").value = "";
  if (delivered === 0) notify("Sent, but nobody else was there to get it.");
}

function writeTo(uid) {
  byId("to").value = "uid";
  byId("target").value = uid;
  showTarget();
  byId("text").focus();
}

function showTarget() {
  const isNeeded = byId("to").value !== "room";
  byId("target").hidden = !isNeeded;
  byId("target").required = isNeeded;
}

function showSubs() {
  const chip = (sub) => {
    const leave = () => {
      room.leave(sub);
      showSubs();
    };
    return make("li", {}, sub, button("×", leave, { className: "plain", ariaLabel: `Leave ${sub}` }));
  };
  byId("my-subs").replaceChildren(...room.subs.map(chip));
}

function onSubmit(id, work) {
  byId(id).onsubmit = (event) => {
    event.preventDefault();
    attempt(work);
  };
}

// ---- the end, and who may move it ------------------------------------------------------------------------------------

const clockOffset = Date.parse(document.documentElement.dataset.now) - Date.now(); // clocks differ; the gateway's counts
let endsAt = 0;

function setEnd(expiresAt) {
  endsAt = Date.parse(expiresAt);
  byId("ends").textContent = new Date(endsAt).toLocaleString();
  showCountdown();
}

/** Its creator may have moved it. */
async function refreshEnd() {
  setEnd((await ask(addressOf())).expires_at);
}

function showCountdown() {
  if (room.state === Link.GONE) return;
  const left = Math.max(0, Math.ceil((endsAt - Date.now() - clockOffset) / 1000));
  const days = Math.floor(left / 86_400);
  const clock = [3_600, 60, 1].map((unit) => String(Math.floor((left % (unit * (unit === 3_600 ? 24 : 60))) / unit)));
  const text = clock.map((part) => part.padStart(2, "0")).join(":");
  byId("countdown").textContent = days === 0 ? text : `${days} ${days === 1 ? "day" : "days"} ${text}`;
}

/** The creator's claim comes once, in the fragment, which is no part of a link that is copied on. */
function takeClaim() {
  const claim = /^#claim=(ei_[A-Za-z0-9_-]{43})$/.exec(location.hash)?.[1];
  if (claim !== undefined) {
    sessionStorage.setItem(stored("claim"), claim);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(stored("claim"));
}

function showOwner(bearer) {
  byId("owner").append(byId("owner-template").content.cloneNode(true));
  onSubmit("shorten", async () => {
    const json = { ttl_seconds: Number(byId("new-life").value) };
    setEnd((await ask(addressOf(), { method: "PATCH", json, bearer })).expires_at);
    notify("The space has a new end.");
  });
  byId("end-space").onclick = () => byId("end-dialog").showModal();
  byId("end-dialog").onclose = () => {
    if (byId("end-dialog").returnValue === "end") attempt(() => ask(addressOf(), { method: "DELETE", bearer }));
  };
}

// ---- copying ---------------------------------------------------------------------------------------------------------

async function copy(element) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(element.textContent);
  } else {
    getSelection().selectAllChildren(element); // not over HTTPS: the old way
    document.execCommand("copy");
  }
  notify("Copied.");
}

// ---- all of it -------------------------------------------------------------------------------------------------------

const claim = takeClaim();
if (claim !== null) showOwner(claim);
onSubmit("send", send);
onSubmit("rename", () => {
  enter(byId("new-uid").value);
  byId("rename").reset();
});
onSubmit("join", () => {
  room.join(byId("join-subs").value);
  byId("join").reset();
  showSubs();
});
byId("to").onchange = showTarget;
byId("text").onkeydown = (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  byId("send").requestSubmit();
};
for (const each of document.querySelectorAll("[data-copy]")) {
  each.onclick = () => attempt(() => copy(byId(each.dataset.copy)));
}
const guest = () => `guest-${Math.random().toString(36).slice(2, 6)}`;
enter(sessionStorage.getItem(stored("uid")) ?? guest());
setEnd(document.documentElement.dataset.ends);
setInterval(showCountdown, 1_000);
setInterval(refresh, REFRESH_MS);
document.addEventListener("visibilitychange", refresh);
