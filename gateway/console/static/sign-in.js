/**
 * Coming in and going out: a link from the address, a passkey, and the offer to make one. What is in the fragment is
 * read once, and neither the address bar nor the history keeps it.
 */

import { ask, Refused } from "./api.js";
import { attempt, byId, notify } from "./dom.js";
import { forgetUnknown, register, signIn } from "./passkey.js";
import { showPasskeys } from "./passkey-list.js";
import { session } from "./session.js";
import { speak } from "./spoken.js";

const LINK = /^#k=([A-Za-z0-9_-]{16,256})$/;
const DISMISSED = "heliograph.console.passkey-dismissed";
const USED = "This link is unknown, was used already, or is older than ten minutes. Make another one.";
const NOT_ACCEPTED = "The passkey was not accepted. Try again, or sign in with a link.";
const UNKNOWN = "This passkey is not known here any more. Sign in with a link, and make another one.";
const ENDED = "Your session has ended. Sign in again to go on where you were.";

export const hasLink = () => LINK.test(location.hash);

function takeLink() {
  const link = LINK.exec(location.hash)?.[1];
  history.replaceState(null, "", location.pathname + location.search);
  return link;
}

/** With the link in the address, or the session that the browser has; whether somebody is signed in then. */
export async function comeIn() {
  if (hasLink()) {
    const link = takeLink();
    say("Signing you in …");
    try {
      enter(await ask("session", { link }), true);
      return true;
    } catch (error) {
      say(error instanceof Refused && error.status === 401 ? USED : error.message);
      if (!(error instanceof Refused)) return false;
      return findAgain(); // another session may be open still
    }
  }
  return findAgain();
}

/** The session that the browser's cookie is for, if it is good. */
export async function findAgain() {
  try {
    enter(await ask("whoami"), false);
    return true;
  } catch (error) {
    if (!(error instanceof Refused)) say(`${error.message} It is tried again when you reload the page.`);
    return false;
  }
}

/** `isNew`: signed in just now, and not only found again. */
function enter({ operator, passkey_offered: isOffered }, isNew) {
  say("");
  byId("make-passkey").hidden = !isOffered;
  offer(isOffered && localStorage.getItem(DISMISSED) === null);
  session.open(operator, isNew);
}

export function say(text) {
  byId("said").textContent = text;
}

export const sayEnded = () => say(ENDED);

// ---- passkeys -------------------------------------------------------------------------------------------------------

async function useAPasskey() {
  const { ceremony, publicKey } = await ask("sign-in/options");
  const credential = await signIn(publicKey);
  try {
    enter(await ask("sign-in", { ceremony, credential }), true);
  } catch (error) {
    if (error.status === 404) await forgetUnknown(publicKey, credential);
    throw error.status === 404 || error.status === 401
      ? new Error(error.status === 404 ? UNKNOWN : NOT_ACCEPTED, { cause: error })
      : error;
  }
}

async function makeAPasskey() {
  const { ceremony, publicKey } = await ask("passkey/options");
  await ask("passkey", { ceremony, credential: await register(publicKey) });
  offer(false);
  notify("Your passkey is registered. Next time, sign in with it.");
}

/** To make one, for the next time. */
function offer(isOn) {
  document.documentElement.dataset.passkey = isOn ? "offered" : "";
}

export const isOffered = () => document.documentElement.dataset.passkey === "offered";

export function dismissOffer() {
  localStorage.setItem(DISMISSED, "yes");
  offer(false);
}

export const acceptOffer = () => attempt(makeAPasskey);

async function goOut() {
  await ask("session/end");
  say("You are signed out.");
  session.end(true);
}

export function listen() {
  const entrance = byId("use-passkey");
  entrance.onclick = async () => {
    entrance.disabled = true;
    say("");
    try {
      await useAPasskey();
    } catch (error) {
      say(error.message);
    } finally {
      entrance.disabled = false;
    }
  };
  byId("make-passkey").onclick = acceptOffer;
  byId("list-passkeys").onclick = () => attempt(showPasskeys);
  byId("sign-out").onclick = () => attempt(goOut);
  session.addEventListener("open", () => speak("You are signed in."));
}
