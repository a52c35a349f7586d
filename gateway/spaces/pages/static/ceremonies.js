/** Passkeys of this page's space, from the gateway's options to its tokens. Whatever fails has words for a person. */

import { addressOf, ask } from "./api.js";
import { forgetUnknown, register, signIn } from "./passkey.js";

const post = (json, path) => ask(addressOf("iam", ...path), { method: "POST", json, bearer: null });
const UNNAMED = /^New member/; // the gateway does not know the name yet when it begins

/** With a passkey of this device. */
export async function login() {
  const { ceremony, publicKey } = await post({}, ["login", "options"]);
  const credential = await signIn(publicKey);
  try {
    return await post({ ceremony, credential }, ["login"]);
  } catch (error) {
    if (error.status === 404) {
      await forgetUnknown(publicKey, credential);
      throw new Error("No member of this space has that passkey. If you were one, ask an owner for an invite.");
    }
    throw error.status === 401 ? new Error("That passkey is not one of this space.") : error;
  }
}

/** Begin to make a passkey: of a new member with an invite or the claim, or a further one of whoever is signed in. */
export async function begin(invite) {
  if (invite !== undefined) return post({ invite }, ["options"]);
  return ask(addressOf("iam", "options"), { method: "POST", json: {} });
}

/** Make it. `label` is the name of a new member, which the passkey's own name says too. */
export async function finish({ ceremony, publicKey }, label) {
  const name = label ? publicKey.user.name.replace(UNNAMED, () => label) : publicKey.user.name;
  const user = { ...publicKey.user, name, displayName: name };
  const credential = await register({ ...publicKey, user });
  return post(label ? { ceremony, credential, label } : { ceremony, credential }, ["members"]);
}

/** A name in the room that looks like a member's. */
export function uidOf(label) {
  return label.trim().replace(/[^A-Za-z0-9._:@~-]+/g, "-").replace(/^[.-]+|-+$/g, "").slice(0, 64);
}
