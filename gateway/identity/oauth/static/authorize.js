/** The consent page: a click, then the passkey, then back to the client. What the gateway offers instead needs a click more. */

import { forgetUnknown, signIn } from "./passkey.js";

const byId = (id) => document.getElementById(id);
const page = byId("authorize"), allow = byId("allow"), said = byId("said");
const options = JSON.parse(page.dataset.options), texts = JSON.parse(page.dataset.texts);
const AGAIN = "That did not work, and nothing was given. A new page is needed for another attempt.";
const BUSY = "The gateway has too much to do: wait a minute.";
let accept = useAPasskey;

allow.onclick = async () => {
  allow.disabled = true;
  said.textContent = "";
  try {
    await accept();
  } catch (error) {
    said.textContent = error.message;
    startAnew();
  }
};

async function useAPasskey() {
  const credential = await signIn(options);
  const answer = await post({ ceremony: page.dataset.ceremony, credential });
  if (answer.status === 404) {
    await forgetUnknown(options, credential);
    throw new Error("This gateway does not know that passkey, or its space has ended.");
  }
  await goOn(answer);
}

/** A ceremony is good once: whatever failed, the next attempt has a page of its own. */
function startAnew() {
  allow.textContent = "Try again";
  allow.disabled = false;
  accept = async () => location.reload();
}

async function goOn(answer) {
  if (!answer.ok) throw new Error(answer.status === 429 || answer.status === 503 ? BUSY : AGAIN);
  const { redirect, offer } = await answer.json();
  if (redirect) {
    location.assign(redirect);
    return;
  }
  byId("offered").replaceChildren(...offer.scopes.map(item));
  byId("asked").hidden = true;
  byId("offer").hidden = false;
  allow.textContent = "Allow this";
  allow.disabled = false;
  accept = async () => goOn(await post({ ceremony: offer.ceremony }));
}

function item(scope) {
  const name = Object.assign(document.createElement("code"), { textContent: scope });
  const element = document.createElement("li");
  element.append(name, `: ${texts[scope] ?? ""}`);
  return element;
}

function post(body) {
  const headers = { "Content-Type": "application/json" };
  return fetch("/oauth/authorize", { method: "POST", headers, body: JSON.stringify(body) }).catch(() => {
    throw new Error("The gateway cannot be reached at the moment.");
  });
}
