/** What operators do to a node, by the very routes of `/admin`; each is asked about first. A missing scope is named. */

import { ask } from "./api.js";
import { askInDialog, fieldOf } from "./dialog.js";
import { make, notify } from "./dom.js";
import { code, note, said } from "./parts.js";
import { session } from "./session.js";

const SCOPE = "fleet:write";
const TAG = /^([a-z0-9][a-z0-9_-]{0,62})=([A-Za-z0-9._-]{1,63})$/;

export class NodeActions {
  #node = null;
  #signal;
  #changed;
  #buttons;
  #lacking = make(
    "p",
    { className: "note lacks-scope", id: "actions-lacking" },
    "Changing it needs the scope ",
    code(SCOPE),
    ".",
  );

  /** `changed` is called when something was done. */
  constructor(signal, changed) {
    [this.#signal, this.#changed] = [signal, changed];
    const button = (text, onclick, className = "") => make(
      "button",
      { type: "button", className, onclick: () => session.may(SCOPE) && onclick() },
      text,
    );
    this.#buttons = {
      rename: button("Rename", () => this.#rename()),
      tag: button("Tags", () => this.#tag()),
      renew: button("Renew", () => this.#renew()),
      revoke: button("Revoke", () => this.#revoke(), "danger"),
      forget: button("Forget", () => this.#forget(), "danger"),
    };
    this.element = make(
      "div",
      { className: "actions", role: "group", ariaLabel: "Actions" },
      ...Object.values(this.#buttons),
      this.#lacking,
    );
  }

  show(node) {
    this.#node = node;
    const may = session.may(SCOPE), isRevoked = node.state === "revoked";
    this.#lacking.hidden = may;
    for (const [name, button] of Object.entries(this.#buttons)) {
      button.hidden = (name === "forget") !== isRevoked;
      button.ariaDisabled = String(!may);
      if (may) button.removeAttribute("aria-describedby");
      else button.setAttribute("aria-describedby", this.#lacking.id);
    }
  }

  get #name() {
    return this.#node.name ?? this.#node.node_id;
  }

  async #act(what, body) {
    const answer = await ask(
      "act",
      { path: `/admin/node/${what}`, method: "POST", body: { node: this.#node.node_id, ...body } },
      this.#signal,
    );
    this.#changed().catch(() => undefined);
    return answer;
  }

  #rename() {
    const input = make("input", {
      type: "text",
      value: this.#node.name ?? "",
      autocomplete: "off",
      spellcheck: false,
      maxLength: 63,
    });
    askInDialog({
      title: "Rename the node",
      body: [fieldOf("Name", input, "a-z, 0-9 and hyphens, up to 63. Empty: it has no name, only its id.")],
      submit: "Rename",
      act: async () => {
        const name = input.value.trim();
        await this.#act("rename", { name: name === "" ? null : name });
        notify("Renamed.");
      },
    }, this.#signal);
  }

  #tag() {
    const text = Object.entries(this.#node.tags).map(([key, value]) => `${key}=${value}`).join("\n");
    const input = make("textarea", { value: text, rows: 6, spellcheck: false, className: "json" });
    const problem = make("p", { className: "problem", role: "alert" });
    const read = () => input.value.split(/\s+/).filter(Boolean).map((line) => TAG.exec(line) ?? line);
    askInDialog({
      title: "Tags of the node",
      body: [
        fieldOf("One a line: key=value", input, "At most 16, one for each key. Agents' policies may go by them."),
        problem,
      ],
      submit: "Save",
      act: async () => {
        const tags = read();
        const wrong = tags.find((tag) => typeof tag === "string");
        problem.textContent = wrong === undefined ? "" : `“${wrong}” is not key=value.`;
        if (wrong !== undefined) throw new Error("Nothing was changed.");
        const set = Object.fromEntries(tags.map(([, key, value]) => [key, value]));
        const remove = Object.keys(this.#node.tags).filter((key) => !Object.hasOwn(set, key));
        await this.#act("tag", { set, remove });
        notify("The tags are saved.");
      },
    }, this.#signal);
  }

  #renew() {
    askInDialog({
      title: "Renew its identity",
      body: [
        make(
          "p",
          {},
          "The gateway makes a new key, certificate and token for ",
          said(this.#name),
          ". The old ones work until the new ones are used, and for 24 hours at most.",
        ),
      ],
      submit: "Renew",
      act: async () => {
        const identity = await this.#act("renew", {});
        const text = make("pre", { id: "identity", className: "tall", tabIndex: 0 }, JSON.stringify(identity, null, 2));
        return [
          make(
            "p",
            {},
            make("strong", {}, "This is shown once."),
            " Put it on the node now; the gateway does not keep the key.",
          ),
          text,
          make("button", { type: "button", className: "copy", dataset: { copy: "identity" } }, "Copy"),
        ];
      },
    }, this.#signal);
  }

  #revoke() {
    this.#confirm(
      "Revoke",
      "revoke",
      "Its session, token and certificate end at once, for good. This id cannot be enrolled again.",
      "Revoked.",
    );
  }

  #forget() {
    this.#confirm(
      "Forget",
      "forget",
      "Its history of commands, its certificates, name and tags are erased. Only the revoked id stays.",
      "Forgotten.",
    );
  }

  /** What cannot be undone takes the node's name, typed. */
  #confirm(word, what, consequences, done) {
    const input = make("input", { type: "text", autocomplete: "off", spellcheck: false });
    const name = this.#name;
    askInDialog({
      title: `${word} this node?`,
      body: [
        make("p", {}, said(name), `: ${consequences}`),
        fieldOf(`Type its name to confirm`, input),
        note("Its name is ", code(name)),
      ],
      submit: word,
      isDangerous: true,
      when: () => input.value.trim() === name,
      act: async () => {
        await this.#act(what, {});
        notify(done);
      },
    }, this.#signal);
  }
}
