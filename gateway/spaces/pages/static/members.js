/** Who is signed in, what they may do, and for owners all members: invites, removal, further passkeys, the end of IAM. */

import { addressOf, ask } from "./api.js";
import { begin, finish } from "./ceremonies.js";
import { attempt, button, byId, make, notify, syncList } from "./dom.js";
import { qrCode } from "./qr.js";
import { revoke, session } from "./session.js";

const TEXTS = {
  "echo.full": "do everything, and decide on members",
  kv_read: "read values",
  kv_write: "write values",
  file_read: "download files",
  file_write: "add files",
  ws_read: "receive messages",
  ws_write: "send messages",
};
const LAST_OWNER = "A space with members needs an owner, and this is the last one. Invite another owner first, or switch members off.";

/** In words, always in the same order. */
export function scopesText(scopes) {
  return Object.keys(TEXTS).filter((scope) => scopes.includes(scope)).map((scope) => TEXTS[scope]).join(", ");
}

export class Members {
  constructor() {
    byId("own-scopes").textContent = `You are signed in. You may ${scopesText(session.scopes)}.`;
    byId("sign-out").onclick = () => session.signOut();
    if (!session.isOwner) {
      byId("administration").append(
        make("p", { className: "note" }, "Who else is a member, and who comes in, is for owners: your membership lacks ", make("code", { textContent: "echo.full" }), "."),
      );
      return;
    }
    byId("administration").append(byId("members-template").content.cloneNode(true));
    byId("invite").onsubmit = (event) => {
      event.preventDefault();
      attempt(() => this.#invite());
    };
    byId("add-passkey").onclick = () => attempt(() => this.#addPasskey());
    byId("switch-off").onclick = () => attempt(() => this.#switchOff());
  }

  async refresh() {
    if (!session.isOwner) return;
    const { members } = await ask(addressOf("iam"));
    if (members === undefined) return; // switched off meanwhile: the session's end follows
    const item = (member) => this.#item(member);
    syncList(byId("members"), members, (member) => member.member_id, "member", item, (entry, { passkeys }) => {
      entry.querySelector(".passkeys").textContent = passkeys === 1 ? "1 passkey" : `${passkeys} passkeys`;
    });
  }

  #item({ member_id, label, scope, added_at }) {
    const isMe = member_id === session.memberId;
    const name = make("strong", { textContent: label || "without a name" });
    const since = make("time", { dateTime: added_at, textContent: new Date(added_at).toLocaleString() });
    return make(
      "li",
      { className: "row", dataset: { member: member_id } },
      name,
      isMe ? make("span", { className: "you", textContent: "you" }) : "",
      make("span", { className: "note" }, `may ${scopesText(scope.split(" "))} · since `, since, " · ", make("span", { className: "passkeys" })),
      button("Remove", () => attempt(() => this.#remove(member_id, label, isMe)), {
        className: "delete",
        ariaLabel: `Remove ${label || member_id}`,
      }),
    );
  }

  async #invite() {
    const scope = [...byId("invite").querySelectorAll("[name=scope]:checked")].map((box) => box.value).join(" ");
    if (!scope) throw new Error("Choose what the new member may do: at least one thing.");
    const json = { scope, ttl_seconds: Number(byId("invite-life").value) };
    const { url, expires_at } = await ask(addressOf("iam", "invites"), { method: "POST", json });
    byId("invite-url").textContent = url;
    byId("invite-ends").textContent = new Date(expires_at).toLocaleString();
    byId("invite-qr").replaceChildren(qrCode(url, "QR code of the invite"));
    byId("invited-link").hidden = false;
    byId("invite-url").focus();
  }

  async #remove(memberId, label, isMe) {
    const question = isMe
      ? "Remove yourself? You are signed out everywhere, and your passkeys open nothing here any more."
      : `Remove ${label || "this member"}? What they have open here ends at once, and their invites with it.`;
    if (!(await confirmed(question, "Remove"))) return;
    await ask(addressOf("iam", "members", memberId), { method: "DELETE" }).catch((error) => {
      throw error.status === 409 ? new Error(LAST_OWNER) : error;
    });
    notify(`${label || "The member"} is removed.`);
    await this.refresh();
  }

  async #addPasskey() {
    const { access_token } = await finish(await begin());
    await revoke(access_token).catch(() => {}); // this page has a grant: the one that came with the passkey is spare
    notify("You have another passkey.");
    await this.refresh();
  }

  async #switchOff() {
    const question = "Switch members off? Everybody who has the link is in then, and it cannot be protected again.";
    if (await confirmed(question, "Switch off")) await ask(addressOf("iam"), { method: "DELETE" });
  }
}

function confirmed(question, yes) {
  const dialog = byId("sure");
  byId("sure-question").textContent = question;
  byId("sure-yes").textContent = yes;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue === "yes");
  });
}
