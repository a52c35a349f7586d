/**
 * Who is signed in: the operator as the gateway tells it, in memory alone. The cookie is the browser's, and no script
 * reads it. Other tabs of the console are told, so that one sign-in is for all of them.
 *
 * Events: `open` (somebody is signed in), `end` (nobody is any more).
 */

export const SCOPES = ["fleet:read", "fleet:write", "tokens:mint", "policy:write", "spend:read"];

class Session extends EventTarget {
  #operator = null;
  #tabs = new BroadcastChannel("heliograph-console");

  constructor() {
    super();
    this.#tabs.onmessage = ({ data }) => this.dispatchEvent(
      new Event(data === "open" ? "elsewhere" : "ended-elsewhere"),
    );
  }

  get isOpen() {
    return this.#operator !== null;
  }

  get operator() {
    return this.#operator;
  }

  may(scope) {
    return this.#operator?.scopes.includes(scope) ?? false;
  }

  /** `isNew`: not only found again. */
  open(operator, isNew = false) {
    this.#operator = operator;
    if (isNew) this.#tabs.postMessage("open");
    this.dispatchEvent(new Event("open"));
  }

  end(isSaid = false) {
    if (this.#operator === null) return;
    this.#operator = null;
    if (isSaid) this.#tabs.postMessage("end");
    this.dispatchEvent(new Event("end"));
  }
}

export const session = new Session();
