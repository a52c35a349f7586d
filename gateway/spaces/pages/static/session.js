/**
 * Who is signed in to this page's space: the tokens of a member, in `sessionStorage` by space, refreshed in time. In a
 * space without IAM there is nobody, and everybody may do everything.
 *
 * Events: `token` (there is a new access token), `end` (nobody is signed in any more).
 */

const { space, iam } = document.documentElement.dataset;
const STORED = `echo.session.${space}`;
const SAID = `echo.said.${space}`;
const EARLY_MS = 60_000; // before its end a token is refreshed; of a short one, a quarter of its life
const SELDOM_MS = 1_000; // between two refreshes at least: tokens end with their space, and the last ones live briefly
const AGAIN_MS = 10_000; // after a refresh that did not get through
const FULL = "echo.full";

export const hasIam = iam === "on";

/** Why a page is shown again, to be said there. */
export const Said = Object.freeze({ ENDED: "ended", SIGNED_OUT: "signed-out", UNTOLD: "untold" });

class Session extends EventTarget {
  #tokens = hasIam ? JSON.parse(sessionStorage.getItem(STORED)) : null;
  #refreshing = null;
  #timer = null;

  constructor() {
    super();
    this.#plan();
  }

  get isOpen() {
    return this.#tokens !== null;
  }

  get memberId() {
    return this.#tokens?.memberId;
  }

  get scopes() {
    return this.#tokens?.scope.split(" ") ?? [];
  }

  may(scope) {
    return !hasIam || this.scopes.includes(scope) || this.scopes.includes(FULL);
  }

  get isOwner() {
    return hasIam && this.scopes.includes(FULL);
  }

  /** What the service gave for a passkey, or for a refresh token. */
  keep({ access_token, refresh_token, expires_in, scope, member_id }) {
    const lifeMs = 1000 * expires_in;
    const endsAt = Date.now() + lifeMs;
    const memberId = member_id ?? this.#tokens?.memberId;
    const renewAt = endsAt - Math.min(EARLY_MS, lifeMs / 4);
    this.#tokens = { access: access_token, refresh: refresh_token, scope, memberId, endsAt, renewAt };
    sessionStorage.setItem(STORED, JSON.stringify(this.#tokens));
    this.#plan();
    this.dispatchEvent(new Event("token"));
  }

  /** One that is good, as far as this page knows; undefined where nobody is signed in. `refused` is one that was not. */
  async accessToken(refused) {
    const tokens = this.#tokens;
    if (tokens === null) return undefined;
    if (tokens.access !== refused && Date.now() < tokens.renewAt) return tokens.access;
    try {
      await this.#refresh();
    } catch (error) {
      if (tokens.access === refused || Date.now() >= tokens.endsAt) throw error;
    }
    return this.#tokens?.access;
  }

  /** The space is over: there is nothing left to be signed in to. */
  rest() {
    clearTimeout(this.#timer);
  }

  /** End it, here and at the gateway. */
  async signOut() {
    const token = this.#tokens?.refresh;
    if (token === undefined) return;
    this.#forget(); // first: what the gateway closes now is not to be opened again
    const isTold = await post("/oauth/revoke", { token }).then((answer) => answer.ok, () => false);
    this.#tellEnd(isTold ? Said.SIGNED_OUT : Said.UNTOLD);
  }

  /** Forget the tokens; what was said is for the page that is shown next. */
  end(said) {
    if (this.#tokens === null) return;
    this.#forget();
    this.#tellEnd(said);
  }

  #forget() {
    this.#tokens = null;
    clearTimeout(this.#timer);
    sessionStorage.removeItem(STORED);
  }

  #tellEnd(said) {
    sessionStorage.setItem(SAID, said);
    this.dispatchEvent(new Event("end"));
  }

  #plan() {
    clearTimeout(this.#timer);
    if (this.#tokens === null) return;
    const refresh = () => this.accessToken().catch(() => (this.#timer = setTimeout(refresh, AGAIN_MS)));
    this.#timer = setTimeout(refresh, Math.max(SELDOM_MS, this.#tokens.renewAt - Date.now()));
  }

  /** However many ask for it, once at a time: a refresh token is good once. */
  #refresh() {
    this.#refreshing ??= this.#renew().finally(() => (this.#refreshing = null));
    return this.#refreshing;
  }

  async #renew() {
    const answer = await post("/oauth/token", { grant_type: "refresh_token", refresh_token: this.#tokens.refresh });
    const document = await answer.json().catch(() => null);
    if (this.#tokens === null) return; // signed out meanwhile
    if (answer.ok) this.keep(document);
    else if (answer.status < 429 || document?.error === "mcp_disabled") this.end(Said.ENDED);
    else throw new Error("The gateway cannot be reached at the moment.");
  }
}

/** What the page before had to say, once. */
export function takeSaid() {
  const said = sessionStorage.getItem(SAID);
  sessionStorage.removeItem(SAID);
  return said;
}

function post(path, fields) {
  return fetch(path, { method: "POST", body: new URLSearchParams(fields) }).catch(() => {
    throw new Error("The gateway cannot be reached at the moment.");
  });
}

/** To end a grant that this page does not need. */
export const revoke = (token) => post("/oauth/revoke", { token });

export const session = new Session();
