/** Passkeys that sign in to this console: one's own, and everybody's for those who may mint. Each can be removed. */

import { ask } from "./api.js";
import { moment } from "./clock.js";
import { attempt, make, notify } from "./dom.js";
import { badge, code, note, said } from "./parts.js";
import { session } from "./session.js";

export async function showPasskeys() {
  const list = make("ul", { className: "passkeys" });
  const done = make("button", { type: "button", className: "primary", onclick: () => dialog.close() }, "Done");
  const title = make("h2", { id: "passkeys-title" }, "Passkeys");
  const dialog = make(
    "dialog",
    { attributes: { "aria-labelledby": title.id } },
    make("div", { className: "stack" }, title, list, make("p", { className: "row" }, done)),
  );
  const fill = async () => {
    const { passkeys } = await ask("passkeys");
    list.replaceChildren(
      ...(passkeys.length === 0 ? [make("li", {}, note("There are none."))] : passkeys.map((one) => item(one, fill))),
    );
  };
  await fill();
  const close = () => dialog.close();
  session.addEventListener("end", close);
  dialog.onclose = () => {
    session.removeEventListener("end", close);
    dialog.remove();
  };
  document.body.append(dialog);
  dialog.showModal();
}

function item({ id, sub, scopes, made_at_ms: madeMs, used_at_ms: usedMs, ends_at_ms: endsMs, revoked }, changed) {
  const remove = async () => {
    await ask("passkey/remove", { id });
    notify("The passkey is removed.");
    await changed();
  };
  return make(
    "li",
    {},
    make(
      "p",
      { className: "row" },
      make("strong", {}, said(sub)),
      revoked ? badge("revoked") : "",
      make(
        "button",
        {
          type: "button",
          className: "danger small aside",
          ariaLabel: `Remove the passkey ${id}`,
          onclick: () => attempt(remove),
        },
        "Remove",
      ),
    ),
    note("made ", moment(madeMs), ", last used ", moment(usedMs), ", until ", moment(endsMs)),
    note(...scopes.flatMap((scope, at) => [at > 0 ? " " : "", code(scope)])),
  );
}
