/** The values of the space: list, read, write, delete. In encrypted rooms they are sealed and opened here. */

import { addressOf, ask } from "./api.js";
import { attempt, button, byId, make, notify, sizeText, syncList } from "./dom.js";
import { kvKid } from "./seal.js";
import { session } from "./session.js";

export class Values {
  #vault;
  #list = byId("keys");

  constructor(vault) {
    this.#vault = vault;
    byId("key-form").onsubmit = (event) => {
      event.preventDefault();
      attempt(() => this.#save());
    };
  }

  async refresh() {
    if (!session.may("kv_read")) return;
    const keys = [];
    let cursor = null;
    do {
      const page = await ask(addressOf("kv") + (cursor === null ? "" : `?cursor=${encodeURIComponent(cursor)}`));
      keys.push(...page.keys);
      cursor = page.next_cursor;
    } while (cursor !== null);
    byId("no-keys").hidden = keys.length > 0;
    syncList(this.#list, keys, (entry) => entry.key, "key", (entry) => this.#item(entry), (item, entry) => {
      const ends = new Date(entry.expires_at).toLocaleString();
      item.querySelector(".note").textContent = `version ${entry.version} · ${sizeText(entry.size)} · until ${ends}`;
      const value = item.querySelector("pre");
      if (!value.hidden && item.dataset.version !== String(entry.version)) attempt(() => this.#show(item));
      item.dataset.version = entry.version;
    });
  }

  #item({ key }) {
    const item = make(
      "li",
      { dataset: { key } },
      make("div", { className: "row" }, make("code", { textContent: key }), make("span", { className: "note" })),
      make("pre", { hidden: true, tabIndex: 0 }),
    );
    item.firstChild.append(
      button("Read", () => attempt(() => this.#toggle(item)), { className: "read", ariaLabel: `Read ${key}` }),
    );
    if (!session.may("kv_write")) return item;
    item.firstChild.append(
      button("Edit", () => attempt(() => this.#edit(item)), { className: "edit", ariaLabel: `Edit ${key}` }),
      button("Delete", () => attempt(() => this.#delete(key)), { className: "delete", ariaLabel: `Delete ${key}` }),
    );
    return item;
  }

  async #toggle(item) {
    if (item.querySelector("pre").hidden) await this.#show(item);
    else item.querySelector("pre").hidden = true;
  }

  async #show(item) {
    const { text, note } = await this.#read(item.dataset.key);
    const value = item.querySelector("pre");
    value.textContent = text ?? note;
    value.hidden = false;
  }

  async #read(key) {
    const entry = await ask(addressOf("kv", key));
    if (entry.value === undefined) return { note: "binary, in base64: " + entry.value_base64 };
    return entry.encrypted ? this.#vault.open(kvKid(key), entry.value) : { text: entry.value };
  }

  async #edit(item) {
    const { text, note } = await this.#read(item.dataset.key);
    if (text === undefined) throw new Error(note);
    byId("key-name").value = item.dataset.key;
    byId("key-value").value = text;
    byId("key-value").focus();
  }

  async #save() {
    const key = byId("key-name").value;
    const ttl = byId("key-ttl").value;
    const value = await this.#vault.seal(kvKid(key), byId("key-value").value);
    const json = ttl ? { value, ttl_seconds: Number(ttl) } : { value };
    await ask(addressOf("kv", key), { method: "POST", json });
    byId("key-form").reset();
    notify(`Saved ${key}.`);
    await this.refresh();
  }

  async #delete(key) {
    await ask(addressOf("kv", key), { method: "DELETE" });
    notify(`Deleted ${key}.`);
    await this.refresh();
  }
}
