/**
 * The console's calls, `POST /console/api/NAME`. Whatever fails throws an Error with words for a person: a `Refused` if
 * the gateway said no, an `Unreachable` if it said nothing. That a sign-in is needed, `session` is told.
 */

import { learn } from "./clock.js";
import { session } from "./session.js";

const API = "/console/api/";
const DATE_MS = 2_000; // how exact the header is, with the way to here
const SCOPE = /\b(fleet:read|fleet:write|tokens:mint|policy:write|spend:read)\b/;

/** The gateway's answer is no. */
export class Refused extends Error {
  constructor(status, envelope) {
    super(envelope?.message ?? `The gateway answered with status ${status}.`);
    this.status = status;
    this.code = envelope?.code ?? null;
    this.fix = envelope?.suggested_fix ?? null;
    this.correlationId = envelope?.correlation_id ?? null;
    this.retryAfterMs = envelope?.retry_after_ms ?? null;
    /** The scope that the operator lacks, where that is why. */
    this.scope = status === 403 ? (SCOPE.exec(`${this.message} ${this.fix ?? ""}`)?.[1] ?? null) : null;
  }
}

/** There is no answer: the gateway is down, or the way to it. */
export class Unreachable extends Error {
  constructor() {
    super("The gateway cannot be reached.");
  }
}

/** The answer's document; null where there is none. */
export async function ask(name, body = {}, signal = undefined) {
  const answer = await send(name, body, signal);
  if (answer.status === 204) return null;
  return answer.json().catch((error) => {
    throw error.name === "AbortError" ? error : new Unreachable(); // it broke off in the middle
  });
}

/** The answer itself, for those who read it bit by bit. */
export async function send(name, body, signal) {
  const headers = { "Content-Type": "application/json" };
  const request = { method: "POST", headers, body: JSON.stringify(body), signal, cache: "no-store" };
  const answer = await fetch(API + name, request).catch((error) => {
    throw error.name === "AbortError" ? error : new Unreachable();
  });
  learn(Date.parse(answer.headers.get("Date")), DATE_MS);
  if (answer.ok) return answer;
  const envelope = await answer.json().catch(() => null);
  if (answer.status === 502 || answer.status === 504) throw new Unreachable(); // a proxy's word, not the gateway's
  const refused = new Refused(answer.status, envelope);
  if (answer.status === 401) session.end();
  throw refused;
}
