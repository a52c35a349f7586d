/** The filters above the fleet's table: a text, a tenant, tags. A state is picked by its count. */

import { make } from "./dom.js";
import { said } from "./parts.js";

const TYPING_MS = 250; // after the last key; then the gateway is asked
const TAG = "[a-z0-9][a-z0-9_\\-]{0,62}=[A-Za-z0-9._\\-]{1,63}"; // of browsers' `pattern`

export class FleetFilters {
  #change;
  #tags = make("ul", { className: "tags picked", ariaLabel: "Tags that nodes must have" });
  #search = field("search", { placeholder: "Name or id", ariaLabel: "Find by name or id", dataset: { search: "" } });
  #tenant = field("search", { placeholder: "Tenant", ariaLabel: "Tenant", className: "short" });
  #tag = field("text", {
    placeholder: "key=value",
    ariaLabel: "Add a tag that nodes must have",
    pattern: TAG,
    title: "key=value",
  });
  #picked = [];

  /** `change(what, isTyped)` gets what the person wants to be otherwise. */
  constructor(change, signal) {
    this.#change = change;
    let typing = null;
    const typed = () => {
      clearTimeout(typing);
      typing = setTimeout(() => signal.aborted || this.#tell(), TYPING_MS);
    };
    this.#search.oninput = this.#tenant.oninput = typed;
    const form = make("form", { className: "inline" }, this.#tag, make("button", { type: "submit" }, "Add tag"));
    form.onsubmit = (event) => {
      event.preventDefault();
      this.pick(this.#tag.value.trim());
      this.#tag.value = "";
    };
    const parts = [this.#search, this.#tenant, form, this.#tags];
    this.element = make("div", { className: "filters", role: "search", ariaLabel: "Filter nodes" }, ...parts);
  }

  #tell() {
    this.#change({ text: this.#search.value.trim(), tenant: this.#tenant.value.trim() }, true);
  }

  pick(tag) {
    if (tag && !this.#picked.includes(tag)) this.#change({ tags: [...this.#picked, tag] });
  }

  /** As it is wanted now; what the person is typing stays. */
  show({ text, tenant, tags }) {
    if (document.activeElement !== this.#search) this.#search.value = text;
    if (document.activeElement !== this.#tenant) this.#tenant.value = tenant;
    this.#picked = tags;
    this.#tags.replaceChildren(...tags.map((tag) => make("li", {}, this.#chip(tag))));
  }

  #chip(tag) {
    const onclick = () => {
      this.#change({ tags: this.#picked.filter((one) => one !== tag) });
      this.#search.focus();
    };
    const ariaLabel = `Remove the tag ${tag}`;
    return make("button", { type: "button", className: "tag", ariaLabel, onclick }, said(tag), " ×");
  }
}

const field = (type, properties) => make("input", { type, autocomplete: "off", spellcheck: false, ...properties });
