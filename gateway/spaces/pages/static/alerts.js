/**
 * Notifications of this room on this device, also when the page is closed: a switch, and what the gateway is told of it.
 * What is shown, and when somebody clicks on it, is for `push-worker.js`.
 */

import { addressOf, ask, token } from "./api.js";
import { attempt, byId, notify } from "./dom.js";
import { session } from "./session.js";

const WORKER = "/assets/push-worker.js";
const SCOPE = `/assets/push/${token}/`; // a worker for each room: a browser gives each an endpoint of its own
const OFF = "Notify me on this device";
const ON = "Stop notifications on this device";

export class Alerts {
  #control = byId("notify-me"); // none where the gateway has no keys
  #worker = null; // while they are on
  #who = null; // whom the room knows this page as

  constructor() {
    const isPossible = "PushManager" in window && "serviceWorker" in navigator && session.may("kv_write");
    if (this.#control === null || !isPossible) return;
    this.#control.onclick = () => attempt(() => this.#change(this.#worker === null ? this.#begin : this.#end));
    attempt(() => this.#change(this.#find));
  }

  /** The page goes by this name, and is in these subspaces. */
  async follow(uid, subs) {
    this.#who = { uid, subs };
    if (this.#worker !== null) await this.#tell(await this.#worker.pushManager.getSubscription());
  }

  /** The room is over: nothing comes any more. */
  async rest() {
    if (this.#worker !== null) await this.#forget();
  }

  async #change(work) {
    this.#control.disabled = true;
    try {
      await work.call(this);
    } finally {
      this.#control.disabled = false;
      this.#control.hidden = false;
      this.#control.textContent = this.#worker === null ? OFF : ON;
    }
  }

  async #find() {
    const known = await navigator.serviceWorker.getRegistration(SCOPE);
    if ((await known?.pushManager.getSubscription()) ?? null) this.#worker = known;
  }

  async #begin() {
    if ((await Notification.requestPermission()) !== "granted") {
      throw new Error("Your browser blocks notifications of this page. Its settings can change that.");
    }
    const worker = await navigator.serviceWorker.register(WORKER, { scope: SCOPE });
    await activated(worker);
    const { vapid_public_key } = await ask(addressOf("push", "vapid-public"));
    const options = { userVisibleOnly: true, applicationServerKey: vapid_public_key };
    await this.#tell(await worker.pushManager.subscribe(options));
    this.#worker = worker;
    notify("Notifications of this room come to this device, also when this page is closed.");
  }

  async #end() {
    const { endpoint } = (await this.#worker.pushManager.getSubscription()) ?? {};
    if (endpoint !== undefined) await ask(addressOf("push", "unsubscribe"), { method: "POST", json: { endpoint } });
    await this.#forget();
  }

  async #tell(subscription) {
    const json = { subscription, ...this.#who };
    if (subscription !== null) await ask(addressOf("push", "subscribe"), { method: "POST", json });
  }

  async #forget() {
    const worker = this.#worker;
    this.#worker = null;
    await (await worker.pushManager.getSubscription())?.unsubscribe();
    await worker.unregister();
  }
}

async function activated({ installing, waiting, active }) {
  const worker = installing ?? waiting ?? active;
  while (worker.state !== "activated") {
    await new Promise((changed) => worker.addEventListener("statechange", changed, { once: true }));
    if (worker.state === "redundant") throw new Error("Your browser could not start the notifications.");
  }
}
