/** REST of this page's space. Addresses are made of where the page is, so that they work under every name it has. */

export const token = location.pathname.split("/")[2];
export const addressOf = (...parts) => ["/api/s", token, ...parts.map(encodeURIComponent)].join("/");

/** What the service answers; throws an Error with words for a person. */
export async function ask(path, { method = "GET", json, bearer } = {}) {
  const headers = { Accept: "application/json" };
  if (json !== undefined) headers["Content-Type"] = "application/json";
  if (bearer !== undefined) headers.Authorization = `Bearer ${bearer}`;
  const body = json === undefined ? undefined : JSON.stringify(json);
  const answer = await fetch(path, { method, headers, body }).catch(() => {
    throw new Error("The gateway cannot be reached at the moment.");
  });
  const document = answer.status === 204 ? null : await answer.json().catch(() => null);
  if (!answer.ok) throw refusal(answer.status, document);
  return document;
}

export function refusal(status, document) {
  const wait = document?.retry_after_ms;
  const text = wait === undefined ? document?.message : `Too many requests: try again in ${Math.ceil(wait / 1000)} s.`;
  return Object.assign(new Error(text ?? `The gateway answered with status ${status}.`), { status });
}
