/** The page of a space with IAM: signs in or takes an invite, and then shows the room. */

import { addressOf, ask, text } from "./api.js";
import { begin, finish, login, uidOf } from "./ceremonies.js";
import { byId } from "./dom.js";
import { Said, session, takeSaid } from "./session.js";

const { space, base } = document.documentElement.dataset;
const stored = (name) => `echo.${name}.${space}`;
const INVITE = /^#invite=(ei_[A-Za-z0-9_-]{43})$/;
const CEREMONY_MS = 4 * 60_000; // then it is begun again: the gateway forgets it after five minutes
const AGAIN = "That did not work: it took too long, or the passkey was not accepted. Try again.";
const TEXTS = {
  [Said.ENDED]: "You are signed out: your session has ended, or you are no member any more.",
  [Said.SIGNED_OUT]: "You are signed out.",
  [Said.UNTOLD]: "You are signed out here. The gateway could not be told, so what else is open may stay open for a while.",
};

// ---- what comes in the address ---------------------------------------------------------------------------------------

/** An invite's secret is in the address bar no longer than it takes to read it. */
function takeInvite() {
  const invite = INVITE.exec(location.hash)?.[1];
  if (location.hash) history.replaceState(null, "", location.pathname);
  if (invite !== undefined) sessionStorage.setItem(stored("invite"), invite);
  return sessionStorage.getItem(stored("invite"));
}

const forgetInvite = () => sessionStorage.removeItem(stored("invite"));

// ---- coming in -------------------------------------------------------------------------------------------------------

function show(id) {
  for (const card of document.querySelectorAll("#entrance > .card")) card.hidden = card.id !== id;
}

/** Work for the person behind a button, which rests meanwhile; what fails is said. */
async function work(button, what) {
  button.disabled = true;
  byId("said").textContent = "";
  try {
    await what();
  } catch (error) {
    byId("said").textContent = error.message;
  } finally {
    button.disabled = false;
  }
}

async function enter(tokens) {
  session.keep(tokens);
  await showRoom();
}

async function showInvited(invite) {
  let begun = null;
  let begunAt = 0;
  /** What there is against the invite is known before a passkey is made. */
  const fresh = async () => {
    if (begun === null || Date.now() - begunAt > CEREMONY_MS) {
      begun = await begin(invite);
      begunAt = Date.now();
    }
    return begun;
  };
  const refuse = (error) => {
    if (error.status !== 401) throw error;
    forgetInvite();
    show("bad-invite");
  };
  show("invited");
  byId("enter").onsubmit = (event) => {
    event.preventDefault();
    const label = byId("label").value.trim();
    work(event.submitter, async () => {
      const options = await fresh().catch(refuse);
      if (options === undefined) return;
      begun = null; // good once
      const tokens = await finish(options, label).catch((error) => {
        throw error.status === 401 ? new Error(AGAIN) : error; // whether the invite is still good, the next attempt tells
      });
      forgetInvite();
      sessionStorage.setItem(stored("uid"), uidOf(label) || "member");
      sessionStorage.setItem(stored("joined"), label);
      await enter(tokens);
    });
  };
  await fresh().catch(refuse).catch((error) => (byId("said").textContent = error.message));
}

function toSignIn() {
  forgetInvite();
  show("sign-in");
}

// ---- the room --------------------------------------------------------------------------------------------------------

async function showRoom() {
  const [info, prompt] = await Promise.all([ask(addressOf()), text(`${location.pathname}/prompt`)]);
  if (!session.isOpen) return;
  byId("entrance").replaceWith(byId("room-template").content.cloneNode(true));
  document.title = "Echo space";
  Object.assign(document.documentElement.dataset, { link: "connecting", ends: info.expires_at });
  for (const part of document.querySelectorAll(".bar > [hidden]")) part.hidden = false;
  byId("prompt").textContent = prompt;
  byId("protocol").textContent = info.protocol;
  byId("encryption").textContent = info.encryption_enabled ? "on" : "off";
  const kind = info.encryption_enabled ? "on" : "off";
  for (const part of document.querySelectorAll(`[data-encryption=${kind}]`)) part.hidden = false;
  if (info.encryption_enabled) byId("encryption-key").textContent = info.encryption_key;
  else byId("encryption-key").remove();
  await import("./room-page.js");
}

/** Whatever ended, the gateway says what there is now: a sign-in, or a space without members. */
session.addEventListener("end", () => location.reload());
addEventListener("hashchange", () => INVITE.test(location.hash) && location.reload());

const invite = takeInvite();
if (byId("use-passkey") !== null) {
  byId("said").textContent = TEXTS[takeSaid()] ?? "";
  byId("use-passkey").onclick = ({ currentTarget }) => work(currentTarget, async () => enter(await login()));
  byId("to-sign-in").onclick = byId("used-it").onclick = toSignIn;
  if (location.origin !== base) {
    byId("there").href = base + location.pathname + (invite === null ? "" : `#invite=${invite}`);
    byId("elsewhere").hidden = false;
    for (const control of document.querySelectorAll("#entrance button")) control.disabled = true;
  } else if (invite !== null) {
    await showInvited(invite);
  } else if (session.isOpen) {
    show(null);
    await showRoom().catch((error) => {
      show("sign-in");
      byId("said").textContent = error.message;
    });
  }
}
