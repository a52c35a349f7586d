/** The page of an invitation: who invites to what, a click, the passkey. The secret stays in memory once it is read. */

import { register } from "./passkey.js";

const byId = (id) => document.getElementById(id);
const button = byId("register"), said = byId("said"), texts = JSON.parse(byId("join").dataset.texts);
const invite = location.hash.slice(1);
const ENDED = "This invitation is unknown, was used, or has ended. Ask whoever sent it for another.";
let begun = null;

// Neither the address bar nor the history keeps it. Another link, opened in the same place, only changes the fragment.
history.replaceState(null, "", location.pathname);
addEventListener("hashchange", () => location.reload());

button.onclick = async () => {
  button.disabled = true;
  said.textContent = "";
  try {
    begun ??= await begin();
    const { ceremony, publicKey } = begun;
    begun = null; // good once, whatever becomes of it
    done(await post("/join", { ceremony, credential: await register(publicKey) }));
  } catch (error) {
    said.textContent = error.message;
    button.textContent = "Try again";
    button.disabled = false;
  }
};

async function begin() {
  return post("/join/options", { invite });
}

function done({ mcp_url: address }) {
  byId("mcp").textContent = address;
  byId("joined").hidden = false;
  byId("invitation").hidden = true;
  button.hidden = true;
}

function show({ tenant, label, scopes, expires_at: expires }) {
  byId("tenant").textContent = tenant;
  byId("label").textContent = label;
  byId("named").hidden = !label;
  byId("scopes").replaceChildren(...scopes.map(item));
  byId("expires").textContent = new Date(expires).toLocaleString();
  byId("expires").dateTime = expires;
  byId("invitation").hidden = false;
  button.hidden = false;
  said.textContent = "";
}

function item(scope) {
  const name = Object.assign(document.createElement("code"), { textContent: scope });
  const element = document.createElement("li");
  element.append(name, `: ${texts[scope] ?? ""}`);
  return element;
}

async function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) }).catch(() => {
    throw new Error("The gateway cannot be reached at the moment.");
  });
  if (answer.status === 429) throw new Error("Too many requests: wait a minute.");
  if (answer.status === 401) throw new Error(path === "/join" ? "That did not work. Nothing was registered." : ENDED);
  if (!answer.ok) throw new Error("The gateway cannot do this at present. Try again later.");
  return answer.json();
}

if (!invite) {
  said.textContent = "This page needs the whole link of an invitation.";
} else {
  try {
    begun = await begin();
    show(begun);
  } catch (error) {
    said.textContent = error.message;
  }
}
