/** What only whoever made the space may do, or an owner of one with IAM: move its end, end it, protect it. */

import { addressOf, ask } from "./api.js";
import { begin, finish, uidOf } from "./ceremonies.js";
import { attempt, byId, notify } from "./dom.js";
import { setEnd } from "./end.js";
import { session } from "./session.js";

let isChanging = false;

/** Whether this page is about to be that of a space with IAM: it goes on by itself, with its tokens. */
export const isBeingProtected = () => isChanging;

const { space, base } = document.documentElement.dataset;

/** The creator's claim comes once, in the fragment, which is no part of a link that is copied on. */
export function takeClaim(stored) {
  const claim = /^#claim=(ei_[A-Za-z0-9_-]{43})$/.exec(location.hash)?.[1];
  if (claim !== undefined) sessionStorage.setItem(stored, claim);
  if (/^#(claim|invite)=/.test(location.hash)) history.replaceState(null, "", location.pathname);
  return sessionStorage.getItem(stored);
}

/** `claim`: none where the bearer of whoever is signed in will do. */
export function showOwner(claim) {
  byId("owner").append(byId("owner-template").content.cloneNode(true));
  byId("shorten").onsubmit = (event) => {
    event.preventDefault();
    attempt(async () => {
      const json = { ttl_seconds: Number(byId("new-life").value) };
      setEnd((await ask(addressOf(), { method: "PATCH", json, bearer: claim })).expires_at);
      notify("The space has a new end.");
    });
  };
  byId("end-space").onclick = () => byId("end-dialog").showModal();
  byId("end-dialog").onclose = () => {
    if (byId("end-dialog").returnValue === "end") attempt(() => ask(addressOf(), { method: "DELETE", bearer: claim }));
  };
  const form = byId("protect");
  if (form === null) return;
  form.onsubmit = (event) => {
    event.preventDefault();
    attempt(() => protect(claim, byId("protect-label").value.trim()));
  };
}

/** The first passkey switches IAM on; what the page is from then on, the gateway says. */
async function protect(claim, label) {
  if (location.origin !== base) throw new Error(`Passkeys work under ${base} only: open the space there.`);
  const begun = await begin(claim);
  isChanging = true;
  try {
    session.keep(await finish(begun, label));
  } finally {
    isChanging = session.isOpen;
  }
  sessionStorage.setItem(`echo.uid.${space}`, uidOf(label) || "owner");
  location.reload();
}
