/** Times, amounts and counts in words for people. Pure: `now` is handed in. */

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const whole = new Intl.NumberFormat("en");
const one = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const cents = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const three = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export const countText = (number) => whole.format(number);

/** `1 node`, `2 nodes`. */
export const countOf = (number, noun, nouns = `${noun}s`) => `${countText(number)} ${number === 1 ? noun : nouns}`;

/** At most three digits that matter: 0.25, 12.3, 1.2k. */
export function shortNumber(number) {
  if (!Number.isFinite(number)) return "–";
  const size = Math.abs(number);
  if (size >= 1e9) return `${three.format(number / 1e9)}G`;
  if (size >= 1e6) return `${three.format(number / 1e6)}M`;
  if (size >= 1e4) return `${three.format(number / 1e3)}k`;
  return size >= 100 ? whole.format(Math.round(number)) : three.format(number);
}

/** Of a past time: how long ago, in one unit. */
export function agoText(atMs, nowMs) {
  const span = nowMs - atMs;
  return span < 2 * SECOND ? "now" : `${spanText(span)} ago`;
}

export function spanText(ms) {
  const span = Math.max(0, ms);
  if (span < SECOND) return `${Math.round(span)} ms`;
  if (span < MINUTE) return `${Math.floor(span / SECOND)} s`;
  if (span < HOUR) return `${Math.floor(span / MINUTE)} min`;
  if (span < 2 * DAY) return `${Math.floor(span / HOUR)} h`;
  return `${Math.floor(span / DAY)} d`;
}

// Made once: making one takes as long as formatting a hundred dates.
const dates = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const clocks = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hour12: false });
const days = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

export const dateText = (ms) => dates.format(ms);
export const clockText = (ms) => clocks.format(ms);
export const dayText = (ms) => days.format(ms);

/** Exact, with at least two decimals: $0.015. */
export function moneyText(micros) {
  if (micros === null || micros === undefined) return "–";
  const [dollars, rest] = [Math.trunc(Math.abs(micros) / 1e6), Math.abs(micros) % 1e6];
  const decimals = String(rest).padStart(6, "0").replace(/0{1,4}$/, "");
  return `${micros < 0 ? "−" : ""}$${whole.format(dollars)}.${decimals}`;
}

/** For sums: to the cent, from a dollar on. */
export function sumText(micros) {
  return Math.abs(micros) < 1e6
    ? moneyText(micros)
    : `${micros < 0 ? "−" : ""}$${cents.format(Math.abs(micros) / 1e6)}`;
}

export function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = bytes, at = 0;
  while (size >= 1024 && at < units.length - 1) [size, at] = [size / 1024, at + 1];
  return `${at === 0 ? whole.format(size) : one.format(size)} ${units[at]}`;
}

export const percentText = (number) => `${one.format(number)} %`;

/** A tool's name has its node's id in the middle, of 26 characters: the last ones tell it from others. */
const TOOL = /^([^.]+)\.([0-9a-hjkmnp-tv-z]{26})\.(.+)$/;

export function shortTool(tool) {
  const [, kind, nodeId, rest] = TOOL.exec(tool) ?? [];
  return kind === undefined ? tool : `${kind}.…${nodeId.slice(-4)}.${rest}`;
}

/** An agent's id is 42 characters: its first and its last ones tell it from others of a fleet. */
export const shortId = (id) => (id.length > 20 ? `${id.slice(0, 12)}…${id.slice(-4)}` : id);
