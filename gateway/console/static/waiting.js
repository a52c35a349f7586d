/** Waiting of pages: all of it ends when the page is left (`signal`), and sooner when the person says so. */

import { Refused, Unreachable } from "./api.js";
import { waitMs } from "./backoff-rules.js";
import { link } from "./link.js";

/** So long; or until the page is left, the person wants it now, or the network is back. Never throws. */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve();
      return;
    }
    const over = new AbortController();
    const done = () => {
      clearTimeout(timer);
      over.abort();
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done, { signal: over.signal });
    link.addEventListener("retry", done, { signal: over.signal });
    addEventListener("online", done, { signal: over.signal });
  });
}

/** Until somebody sees the page. */
export async function untilSeen(signal) {
  while (document.visibilityState === "hidden" && !signal.aborted) {
    await new Promise((resolve) => {
      const over = new AbortController();
      const done = () => {
        over.abort();
        resolve();
      };
      document.addEventListener("visibilitychange", done, { signal: over.signal });
      signal.addEventListener("abort", done, { signal: over.signal });
    });
  }
}

/** Whether asking again may help: nobody answered, or the gateway is too busy or too broken at present. */
export const mayHeal = (error) => error instanceof Unreachable || (
  error instanceof Refused && (error.status === 429 || error.status >= 500)
);

/** Does it until it has worked, with longer and longer waits. Throws what asking again does not help against. */
export async function persist(work, signal) {
  for (let failures = 0; ; failures += 1) {
    try {
      const result = await work();
      if (link.state !== "live" && link.state !== "busy") link.set("open");
      return result;
    } catch (error) {
      if (signal.aborted || !mayHeal(error)) throw error;
      const ms = Math.max(error.retryAfterMs ?? 0, waitMs(failures, Math.random()));
      link.lose(Date.now() + ms);
      await pause(ms, signal);
      signal.throwIfAborted();
    }
  }
}

/** Does it now and again, as long as somebody sees the page. */
export async function repeat(work, everyMs, signal) {
  while (!signal.aborted) {
    await persist(work, signal);
    await pause(everyMs, signal);
    await untilSeen(signal);
  }
}
