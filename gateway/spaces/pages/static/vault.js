/** Seals and opens for this room with its key; in rooms without one, what is said goes through as it is. */

import { Fault, importKey, seal, unseal } from "./seal.js";

const NOTES = {
  [Fault.PLAIN]: "not sealed",
  [Fault.OWN_KEY]: "sealed with a key of its own",
  [Fault.OTHER_PLACE]: "sealed for another place: not shown",
  [Fault.BROKEN]: "altered, or sealed with another key: not shown",
};
const NO_CRYPTO = "This browser has no cryptography here: open the page over HTTPS.";

export class Vault {
  #key;

  /** `shown` is the room's key as the page shows it; undefined in a room without encryption. */
  constructor(shown) {
    this.#key = shown === undefined ? null : crypto.subtle ? importKey(shown) : Promise.reject(new Error(NO_CRYPTO));
    this.#key?.catch(() => {}); // whoever needs it is told
  }

  get isOn() {
    return this.#key !== null;
  }

  async seal(kid, text) {
    return this.isOn ? seal(await this.#key, kid, text) : text;
  }

  /** `{ text }`, or a `{ note }` on why there is none. */
  async open(kid, envelope) {
    try {
      const { text, fault } = await unseal(await this.#key, kid, envelope);
      return fault === undefined ? { text } : { note: NOTES[fault] };
    } catch (error) {
      return { note: error.message };
    }
  }
}
