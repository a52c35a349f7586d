/** The room's page: joins its parts, and has what belongs to none of them: the link's state, messages, names. */

import { Alerts } from "./alerts.js";
import { token } from "./api.js";
import { attempt, button, byId, copyOnClick, make, notify, sizeText } from "./dom.js";
import { refreshEnd, setEnd, showCountdown } from "./end.js";
import { Files } from "./files.js";
import { Members, scopesText } from "./members.js";
import { MessageLog } from "./messages.js";
import { isBeingProtected, showOwner, takeClaim } from "./owner.js";
import { People } from "./people.js";
import { Link, Room } from "./room.js";
import { WS_KID } from "./seal.js";
import { hasIam, session } from "./session.js";
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
const alerts = new Alerts();
const members = hasIam ? new Members() : null;
const people = new People(byId("people"), byId("names"), writeTo);
const mine = new Set(); // connections of this page, past ones too
const canConnect = session.may("ws_read") || session.may("ws_write");
let room = null; // stays so for a member who may neither receive nor send
let isOver = false;
let shown; // the access token that the room saw last
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
  4403: "That name belongs to another member. You have another one now.",
};

function enter(uid) {
  const before = room;
  isBack = false;
  const accessToken = hasIam ? async () => (shown = await session.accessToken()) : undefined;
  room = new Room(location.origin, token, { uid, subs: before?.subs, accessToken });
  before?.close(); // what becomes of its link is no news any more
  const here = room;
  here.addEventListener("link", ({ detail }) => here === room && showLink(detail, uid));
  here.addEventListener("welcome", ({ detail }) => welcome(detail));
  here.addEventListener("msg", ({ detail }) => log.add(detail, mine.has(detail.conn)));
  here.addEventListener("error", ({ detail }) => detail.id === undefined && notify(detail.message, true));
  people.follow(here);
  here.open();
}

function showLink({ state, code }, uid) {
  document.documentElement.dataset.link = state === Link.CLOSED ? Link.LOST : state;
  byId("link-state").textContent = STATES[state];
  if (state === Link.GONE) showEnd();
  if (state === Link.CLOSED && code === 4401) attempt(() => comeBack(uid));
  else if (state === Link.CLOSED) notify(CLOSES[code] ?? "The room closed the connection.", true);
  if (state === Link.CLOSED && code === 4403) enter(guest());
}

/** The access token was not good: with a new one, if there is one; else for whatever the space is now. */
async function comeBack(uid) {
  if (!hasIam) {
    if (!isBeingProtected()) location.reload();
  } else if ((await session.accessToken(shown)) !== undefined) {
    enter(uid);
  }
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
  attempt(() => alerts.follow(uid, room.subs));
  refresh();
}

function guest() {
  return `guest-${Math.random().toString(36).slice(2, 6)}`;
}

function showEnd() {
  isOver = true;
  session.rest();
  attempt(() => alerts.rest());
  byId("over").hidden = false;
  for (const control of document.querySelectorAll("main :is(button, input, select, textarea):not(.copy)")) {
    control.disabled = true;
  }
}

async function refresh() {
  if (document.hidden || isOver || (room !== null && room.state !== Link.OPEN)) return;
  await attempt(async () => {
    try {
      await Promise.all([values.refresh(), files.refresh(), refreshEnd(), members?.refresh()]);
    } catch (error) {
      if (room !== null || error.status !== 404) throw error;
      showEnd(); // no link would tell
    }
  });
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
  attempt(() => alerts.follow(byId("my-uid").textContent, room.subs));
}

function onSubmit(id, work) {
  byId(id).onsubmit = (event) => {
    event.preventDefault();
    attempt(work);
  };
}

// ---- all of it -------------------------------------------------------------------------------------------------------

/** What a member may not do is not offered, and the reason is said in its place. */
function applyScopes() {
  for (const part of document.querySelectorAll("[data-needs]")) part.hidden = !session.may(part.dataset.needs);
  for (const note of document.querySelectorAll("[data-lacks]")) note.hidden = session.may(note.dataset.lacks);
  for (const id of ["rename", "messages"]) byId(id).hidden = !canConnect;
}

function welcomeMember() {
  const label = sessionStorage.getItem(stored("joined"));
  sessionStorage.removeItem(stored("joined"));
  if (label !== null) notify(`Welcome, ${label}. You may ${scopesText(session.scopes)}.`);
}

const claim = takeClaim(stored("claim"));
if (session.isOwner) showOwner();
else if (claim !== null && !hasIam) showOwner(claim);
applyScopes();
welcomeMember();
copyOnClick();
session.addEventListener("token", async () => {
  if (!hasIam) return; // the one that is to be used once the page is loaded again
  shown = await session.accessToken();
  room?.authenticate(shown);
});
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
if (canConnect) {
  enter(sessionStorage.getItem(stored("uid")) ?? guest());
} else {
  byId("link-state").textContent = "without messages";
  byId("my-uid").textContent = "not in the room";
  refresh();
}
setEnd(document.documentElement.dataset.ends);
setInterval(() => isOver || showCountdown(), 1_000);
setInterval(refresh, REFRESH_MS);
document.addEventListener("visibilitychange", refresh);
