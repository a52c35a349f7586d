/**
 * Whether the gateway answers, as the header shows it. Whoever talks to it reports here; changes for the worse and back
 * are spoken too.
 *
 *     idle ── a page asks ──► open: answers come   live: a feed is open
 *                              └──► lost, until a time at which it is tried again
 *                              └──► busy: the gateway has no feed to give at present; pages ask now and then instead
 */

import { byId } from "./dom.js";
import { clockText } from "./formats.js";
import { speak } from "./spoken.js";

const TICK_MS = 500;
const TEXTS = {
  idle: "",
  open: "Connected",
  live: "Live",
  busy: "Not live: too many live pages are open",
  paused: "Paused",
};

class Link extends EventTarget {
  #state = "idle";
  #retryAt = 0;
  #lostAt = 0;
  #timer = null;

  get state() {
    return this.#state;
  }

  get isLost() {
    return this.#state === "lost";
  }

  set(state) {
    const wasLost = this.isLost;
    this.#state = state;
    clearInterval(this.#timer);
    if (wasLost) speak("The connection is back.");
    this.#show();
  }

  /** Tried again at that time; `retry` by then, or earlier if the person says so. */
  lose(retryAtMs) {
    if (!this.isLost) {
      this.#lostAt = Date.now();
      speak("The connection to the gateway is lost. It is tried again by itself.");
    }
    this.#state = "lost";
    this.#retryAt = retryAtMs;
    clearInterval(this.#timer);
    this.#timer = setInterval(() => this.#show(), TICK_MS);
    this.#show();
  }

  retryNow() {
    this.dispatchEvent(new Event("retry"));
  }

  #show() {
    const element = byId("link");
    if (element === null) return;
    element.dataset.state = this.#state;
    byId("link-retry").hidden = !this.isLost;
    byId("link-text").textContent = this.isLost ? this.#lostText() : TEXTS[this.#state];
  }

  #lostText() {
    const seconds = Math.max(0, Math.ceil((this.#retryAt - Date.now()) / 1000));
    const since = `Connection lost at ${clockText(this.#lostAt)}`;
    return seconds > 0 ? `${since}, next try in ${seconds} s` : `${since}, trying now`;
  }
}

export const link = new Link();
