/**
 * The live feed of a page: events over one POST, for as long as the page is open and seen. One that breaks, or falls
 * silent, is opened again with backoff; then the page is told, since it has missed something.
 */

import { Refused, send } from "./api.js";
import { SILENCE_MS, STEADY_MS, waitMs } from "./backoff-rules.js";
import { EventReader } from "./event-stream.js";
import { link } from "./link.js";
import { mayHeal, pause, untilSeen } from "./waiting.js";

const WATCH_MS = 1_000;
const UNSEEN_MS = 60_000; // a page in the background gives its feed back after this, and has it again when it is seen
const BUSY_MS = 10_000; // between looks, where the gateway has no feed to give

const End = Object.freeze({ LEFT: "left", SILENT: "silent", UNSEEN: "unseen", CLOSED: "closed" });

/**
 * `on` has a function for each event by its name, and `again`, for what was missed: called when the feed is back, and
 * now and then where there is none to be had. Returns when the page is left; throws what trying again does not heal.
 */
export async function follow(body, on, signal) {
  let failures = 0;
  let isFirst = true;
  const opened = () => {
    link.set("live");
    if (!isFirst) quietly(() => on.again());
    isFirst = false;
  };
  while (!signal.aborted) {
    const began = Date.now();
    let wait = null;
    try {
      const end = await listen(body, on, opened, signal);
      if (end === End.LEFT) return;
      if (end === End.UNSEEN) {
        link.set("paused");
        await untilSeen(signal);
        continue;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (!mayHeal(error)) throw error;
      if (error instanceof Refused && error.status === 429) wait = await haveNone(on);
    }
    failures = Date.now() - began > STEADY_MS ? 0 : failures + 1;
    if (wait === null) {
      wait = waitMs(failures, Math.random());
      link.lose(Date.now() + wait);
    }
    await pause(wait, signal);
  }
}

/** As many feeds as there may be are open: the page asks instead, until there is one for it. */
async function haveNone(on) {
  link.set("busy");
  await quietly(() => on.again());
  return BUSY_MS;
}

/** Why it is over; throws what kept it from being opened, or broke it. */
async function listen(body, on, opened, signal) {
  const own = new AbortController();
  let end = null;
  const close = (why) => {
    end ??= why;
    own.abort();
  };
  let heardAt = Date.now();
  let seenAt = Date.now();
  const watch = setInterval(() => {
    if (document.visibilityState === "visible") seenAt = Date.now();
    if (Date.now() - heardAt > SILENCE_MS) close(End.SILENT);
    else if (Date.now() - seenAt > UNSEEN_MS) close(End.UNSEEN);
  }, WATCH_MS);
  signal.addEventListener("abort", () => close(End.LEFT), { signal: own.signal });
  if (signal.aborted) close(End.LEFT);
  try {
    const answer = await send("live", body, own.signal);
    opened();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const events = new EventReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return End.CLOSED;
      heardAt = Date.now();
      for (const { name, data } of events.read(value)) {
        if (own.signal.aborted) break;
        if (Object.hasOwn(on, name)) quietly(() => on[name](JSON.parse(data)));
      }
    }
  } catch (error) {
    if (end !== null) return end;
    if (error instanceof Refused) throw error;
    return End.CLOSED; // broken off in the middle
  } finally {
    clearInterval(watch);
    own.abort();
  }
}

/** What a page makes of an event does not end its feed; a mistake in it is told to the browser's console. */
async function quietly(work) {
  try {
    await work();
  } catch (error) {
    if (error.name !== "AbortError") reportError(error);
  }
}
