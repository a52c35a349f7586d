/**
 * Envelopes of encrypted rooms with WebCrypto: JWE compact strings (RFC 7516), `dir` with A256GCM. For any page.
 *
 *     const key = await importKey(encryption_key);
 *     const envelope = await seal(key, WS_KID, "text");
 *     const { text, fault } = await unseal(key, WS_KID, envelope);
 *
 * WebCrypto is there in secure contexts only: over HTTPS, and on this machine.
 */

export const WS_KID = "room#ws";
export const kvKid = (key) => `room#kv/${key}`;

/** Why an envelope was not opened. */
export const Fault = Object.freeze({
  PLAIN: "plain", // no envelope at all
  OWN_KEY: "own_key", // sealed under a key that the clients hold themselves: `x:…`
  OTHER_PLACE: "other_place", // sealed for another place than where it was found
  BROKEN: "broken", // altered, or under another key
});

const ENVELOPE = /^([A-Za-z0-9_-]+)\.\.([A-Za-z0-9_-]{16})\.([A-Za-z0-9_-]*)\.([A-Za-z0-9_-]{22})$/;
const IV_BYTES = 12;
const TAG_BYTES = 16;
const utf8 = new TextEncoder();

/** The room's key, as its document shows it (`encryption_key`). */
export async function importKey(shown) {
  return crypto.subtle.importKey("raw", fromBase64url(shown), "AES-GCM", false, ["encrypt", "decrypt"]);
}

/** The envelope of a text for the place that `kid` names. */
export async function seal(key, kid, text) {
  const header = toBase64url(utf8.encode(JSON.stringify({ alg: "dir", enc: "A256GCM", kid })));
  const iv = crypto.getRandomValues(new Uint8Array(IV_BYTES));
  const algorithm = { name: "AES-GCM", iv, additionalData: utf8.encode(header) };
  const sealed = new Uint8Array(await crypto.subtle.encrypt(algorithm, key, utf8.encode(text)));
  const at = sealed.length - TAG_BYTES;
  return `${header}..${toBase64url(iv)}.${toBase64url(sealed.subarray(0, at))}.${toBase64url(sealed.subarray(at))}`;
}

/** `{ text }` of what was sealed for this place, or `{ fault }`. */
export async function unseal(key, kid, envelope) {
  const parts = typeof envelope === "string" ? ENVELOPE.exec(envelope) : null;
  const header = parts && parsed(parts[1]);
  if (!header || header.alg !== "dir" || header.enc !== "A256GCM" || typeof header.kid !== "string") {
    return { fault: Fault.PLAIN };
  }
  if (header.kid !== kid) {
    return { fault: header.kid.startsWith("x:") ? Fault.OWN_KEY : Fault.OTHER_PLACE };
  }
  try {
    const sealed = new Uint8Array([...fromBase64url(parts[3]), ...fromBase64url(parts[4])]);
    const algorithm = { name: "AES-GCM", iv: fromBase64url(parts[2]), additionalData: utf8.encode(parts[1]) };
    const text = await crypto.subtle.decrypt(algorithm, key, sealed);
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(text) };
  } catch {
    return { fault: Fault.BROKEN };
  }
}

function parsed(part) {
  try {
    return JSON.parse(new TextDecoder().decode(fromBase64url(part)));
  } catch {
    return null;
  }
}

function toBase64url(bytes) {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function fromBase64url(text) {
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (digit) => digit.charCodeAt(0));
}
