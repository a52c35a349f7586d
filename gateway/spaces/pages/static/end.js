/** When the space ends, and how long that is from now, by the gateway's clock. */

import { addressOf, ask } from "./api.js";
import { byId } from "./dom.js";

const clockOffset = Date.parse(document.documentElement.dataset.now) - Date.now(); // clocks differ; the gateway's counts
let endsAt = 0;

export function setEnd(expiresAt) {
  endsAt = Date.parse(expiresAt);
  byId("ends").textContent = new Date(endsAt).toLocaleString();
  showCountdown();
}

/** Its creator may have moved it. */
export async function refreshEnd() {
  setEnd((await ask(addressOf())).expires_at);
}

export function showCountdown() {
  const left = Math.max(0, Math.ceil((endsAt - Date.now() - clockOffset) / 1000));
  const days = Math.floor(left / 86_400);
  const clock = [3_600, 60, 1].map((unit) => String(Math.floor((left % (unit * (unit === 3_600 ? 24 : 60))) / unit)));
  const text = clock.map((part) => part.padStart(2, "0")).join(":");
  byId("countdown").textContent = days === 0 ? text : `${days} ${days === 1 ? "day" : "days"} ${text}`;
}
