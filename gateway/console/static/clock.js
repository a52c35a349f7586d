/** The gateway's clock, as far as its answers tell; and times on pages that say how long ago they are, kept true. */

import { make } from "./dom.js";
import { agoText, dateText, spanText } from "./formats.js";

const TICK_MS = 5_000;
let skewMs = 0;

export const now = () => Date.now() + skewMs;

/** As an answer has it; `toMs` is how exactly: a time that is not better than what is known changes nothing. */
export function learn(nowMs, toMs = 0) {
  const nextMs = nowMs - Date.now();
  if (Number.isFinite(nextMs) && Math.abs(nextMs - skewMs) > toMs) skewMs = nextMs;
}

/** `4 min ago`; with `isSpan` only `4 min`, for what lasts since then. A dash where there is no time. */
export function since(atMs, isSpan = false) {
  if (!isTime(atMs)) return "–";
  const dataset = { at: atMs, form: isSpan ? "span" : "ago" };
  const element = make("time", { dataset, dateTime: new Date(atMs).toISOString(), title: dateText(atMs) });
  write(element);
  return element;
}

/** A moment, in words that do not change. */
export const moment = (atMs) => (
  isTime(atMs) ? make("time", { dateTime: new Date(atMs).toISOString() }, dateText(atMs)) : "–"
);

const isTime = (atMs) => Number.isFinite(atMs) && Math.abs(atMs) <= 8.64e15;

function write(element) {
  const { at, form } = element.dataset;
  const text = form === "span" ? spanText(now() - at) : agoText(Number(at), now());
  if (element.textContent !== text) element.textContent = text;
}

setInterval(
  () => document.visibilityState === "visible" && document.querySelectorAll("time[data-at]").forEach(write),
  TICK_MS,
);
