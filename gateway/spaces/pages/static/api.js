/**
 * REST of this page's space. Addresses are made of where the page is, so that they work under every name it has; where
 * somebody is signed in, requests are theirs.
 */

import { session } from "./session.js";

export const token = location.pathname.split("/")[2];
export const addressOf = (...parts) => ["/api/s", token, ...parts.map(encodeURIComponent)].join("/");

/** What the service answers; throws an Error with words for a person. `bearer`: null for a request that is nobody's. */
export async function ask(path, { method = "GET", json, bearer } = {}) {
  const headers = { Accept: "application/json" };
  if (json !== undefined) headers["Content-Type"] = "application/json";
  const body = json === undefined ? undefined : JSON.stringify(json);
  const answer = await send(path, { method, headers, body }, bearer);
  const document = answer.status === 204 ? null : await answer.json().catch(() => null);
  if (!answer.ok) throw refusal(answer.status, document);
  return document;
}

/** The bytes of a file. */
export async function download(path) {
  const answer = await send(path, { headers: {} });
  if (!answer.ok) throw refusal(answer.status, await answer.json().catch(() => null));
  return answer.blob();
}

export async function text(path) {
  const answer = await send(path, { headers: { Accept: "text/plain" } });
  if (!answer.ok) throw refusal(answer.status, null);
  return answer.text();
}

/** With the bearer given, or the member's; a token that is refused is refreshed, once. */
async function send(path, request, bearer) {
  const asked = (token) => {
    const headers = !token ? request.headers : { ...request.headers, Authorization: `Bearer ${token}` };
    return fetch(path, { ...request, headers }).catch(() => {
      throw new Error("The gateway cannot be reached at the moment.");
    });
  };
  const own = bearer === undefined ? await session.accessToken() : bearer;
  const answer = await asked(own);
  if (answer.status !== 401 || bearer !== undefined || own === undefined) return answer;
  const next = await session.accessToken(own);
  return next === undefined || next === own ? answer : asked(next);
}

export function refusal(status, document) {
  const wait = document?.retry_after_ms;
  const text = wait === undefined ? document?.message : `Too many requests: try again in ${Math.ceil(wait / 1000)} s.`;
  return Object.assign(new Error(text ?? `The gateway answered with status ${status}.`), { status });
}
