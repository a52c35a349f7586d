/** How long to wait before the gateway is asked again, and when a feed that says nothing counts as lost. Pure. */

export const FIRST_MS = 1_000; // before the first new try; doubled with each that fails
export const LONGEST_MS = 30_000; // and never longer
export const SILENCE_MS = 40_000; // a feed pings every 15 s: so long without a byte, and it is lost
export const STEADY_MS = 10_000; // a feed that lasted so long was well: the next wait is the first one again

/** Somewhere in the upper half of the wait, so that many pages do not come back at once. `random` is in [0, 1). */
export function waitMs(failures, random) {
  const ms = Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.min(failures, 10));
  return Math.round(ms / 2 + (random * ms) / 2);
}
