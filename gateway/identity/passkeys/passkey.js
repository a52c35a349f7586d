/**
 * Passkeys in the browser: options of the gateway in, the credential as JSON out. Whatever fails throws an Error with
 * words for a person.
 *
 * The JSON is that of `PublicKeyCredential.toJSON()`, written here: older browsers lack it, and so do the objects with
 * which some password managers answer in the browser's place.
 */

const PROBLEMS = {
  NotAllowedError: "No passkey was used: it was cancelled, or took too long.",
  InvalidStateError: "This device has a passkey for this already.",
  NotSupportedError: "This device cannot make a passkey of a kind that is accepted here.",
  SecurityError: "Passkeys do not work under this address.",
};

/** Makes a passkey. */
export async function register(options) {
  const { challenge, user, excludeCredentials = [] } = options;
  const credential = await ask("create", {
    ...options,
    challenge: toBytes(challenge),
    user: { ...user, id: toBytes(user.id) },
    excludeCredentials: excludeCredentials.map((one) => ({ ...one, id: toBytes(one.id) })),
  });
  const { clientDataJSON, attestationObject } = credential.response;
  return toJson(credential, { clientDataJSON, attestationObject });
}

/** Uses one of those that the browser has for this gateway. */
export async function signIn(options) {
  const credential = await ask("get", { ...options, challenge: toBytes(options.challenge) });
  const { clientDataJSON, authenticatorData, signature, userHandle } = credential.response;
  return toJson(credential, { clientDataJSON, authenticatorData, signature, userHandle });
}

/** After the gateway said that no such credential exists: the browser stops offering it, if it knows how to. */
export async function forgetUnknown(options, credential) {
  await globalThis.PublicKeyCredential?.signalUnknownCredential?.({ rpId: options.rpId, credentialId: credential.id });
}

async function ask(method, publicKey) {
  if (!globalThis.PublicKeyCredential || !navigator.credentials) {
    throw new Error("This browser has no passkeys here: open the page over HTTPS, in a recent browser.");
  }
  try {
    return await navigator.credentials[method]({ publicKey });
  } catch (error) {
    throw new Error(PROBLEMS[error.name] ?? "The browser could not use a passkey.", { cause: error });
  }
}

function toJson({ id, rawId, type }, parts) {
  const present = Object.entries(parts).filter(([, part]) => part);
  const response = Object.fromEntries(present.map(([name, part]) => [name, toText(part)]));
  return { id, rawId: toText(rawId), type, response };
}

function toBytes(text) {
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (character) => character.charCodeAt(0));
}

function toText(buffer) {
  const characters = Array.from(new Uint8Array(buffer), (byte) => String.fromCharCode(byte));
  return btoa(characters.join("")).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
