/** Fleet: how many nodes there are and how they are, and a table of them that the gateway filters, sorts and cuts. */

import { ask } from "./api.js";
import { learn, since } from "./clock.js";
import { make } from "./dom.js";
import { follow } from "./feed.js";
import { countOf, countText, shortId, shortNumber } from "./formats.js";
import { badge, note, nodePath, pageHead, said, tagList } from "./parts.js";
import { sparkline } from "./sparkline.js";
import { speak } from "./spoken.js";
import { DataTable, Pager } from "./table.js";
import { persist } from "./waiting.js";

export const STATES = ["live", "away", "expired", "enrolled", "revoked"];
const MEANINGS = {
  live: "connected now",
  away: "not connected",
  expired: "their manifest has expired",
  enrolled: "never connected yet",
  revoked: "for good",
};
const SIZES = [50, 100, 250, 500];
const SIZE = 100; // rows on a page, unless the person wants otherwise
const TYPING_MS = 250; // after the last key; then the gateway is asked
const DESCENDING_FIRST = new Set(["since", "last_call", "frames_per_s", "drops"]); // a first click shows the largest

export async function open(place, { query, signal }) {
  await new FleetPage(place, query, signal).run();
}

class FleetPage {
  #signal;
  #wanted;
  #round = null; // of the questions that hold now: aborted when others do
  #counts = make("ul", { className: "counts", ariaLabel: "Nodes by state" });
  #share = make("div", { className: "share", ariaHidden: "true" });
  #tiles = new Map();
  #rows = new Map(); // node id → its row, in the order of the window
  #sparks = new Map(); // node id → its line
  #table;
  #pager;
  #empty = note();
  #tags = make("ul", { className: "tags picked", ariaLabel: "Tags that nodes must have" });
  #search;
  #tenant;
  #tagInput;

  constructor(place, query, signal) {
    this.#signal = signal;
    this.#wanted = wantedOf(query);
    this.#drawTiles();
    this.#table = new DataTable({
      caption: "Nodes",
      columns: this.#columns(),
      idOf: (row) => row.node_id,
      onSort: (by) => this.#sort(by),
      className: "nodes",
    });
    this.#pager = new Pager(this.#wanted.limit, (offset) => this.#change({ offset }));
    place.append(
      pageHead("Fleet"),
      this.#counts,
      this.#share,
      this.#filters(),
      this.#table.element,
      this.#empty,
      this.#foot(),
    );
    this.#showTags();
  }

  run() {
    return new Promise((_, reject) => {
      this.#fail = reject;
      this.#signal.addEventListener("abort", () => reject(this.#signal.reason));
      this.#ask();
    });
  }

  #fail = () => undefined;

  // ---- asking -------------------------------------------------------------------------------------------------------

  /** The window that is wanted now, and then what changes in it. */
  async #ask() {
    this.#round?.abort();
    this.#round = new AbortController();
    const signal = AbortSignal.any([this.#round.signal, this.#signal]);
    try {
      await persist(() => this.#load(signal), signal);
      await follow(
        { fleet: this.#body() },
        { fleet: (change) => this.#follow(change), again: () => this.#load(signal) },
        signal,
      );
    } catch (error) {
      if (!signal.aborted) this.#fail(error);
    }
  }

  async #load(signal) {
    const answer = await ask("fleet", this.#body(), signal);
    if (answer.rows.length === 0 && answer.total > 0 && this.#wanted.offset > 0) {
      this.#change({
        offset: Math.floor((answer.total - 1) / this.#wanted.limit) * this.#wanted.limit,
      }); // it has become shorter
      return;
    }
    this.#show(answer);
  }

  #body() {
    const { text, tags, state, tenant, sort, descending, offset, limit } = this.#wanted;
    const body = { sort, descending, offset, limit };
    if (text) body.text = text;
    if (tags.length > 0) body.tags = tags;
    if (state) body.state = state;
    if (tenant) body.tenant = tenant;
    return body;
  }

  /** Whatever the person changes is in the address, so that it can be sent to somebody, and gone back from. */
  #change(what, isTyped = false) {
    this.#wanted = { ...this.#wanted, offset: 0, ...what };
    const { text, tags, state, tenant, sort, descending, offset, limit } = this.#wanted;
    const fields = new URLSearchParams();
    if (text) fields.set("text", text);
    for (const tag of tags) fields.append("tag", tag);
    if (state) fields.set("state", state);
    if (tenant) fields.set("tenant", tenant);
    if (sort !== "name" || descending) fields.set("sort", `${descending ? "-" : ""}${sort}`);
    if (offset > 0) fields.set("offset", offset);
    if (limit !== SIZE) fields.set("limit", limit);
    const address = `/console/fleet${fields.size > 0 ? `?${fields}` : ""}`;
    history[isTyped ? "replaceState" : "pushState"](null, "", address);
    this.#showTags();
    this.#ask();
  }

  #sort(by) {
    const isSame = this.#wanted.sort === by;
    this.#change({ sort: by, descending: isSame ? !this.#wanted.descending : DESCENDING_FIRST.has(by) });
  }

  // ---- showing ------------------------------------------------------------------------------------------------------

  #show({ counts, total, offset, rows, now_ms: nowMs }) {
    learn(nowMs);
    this.#showCounts(counts);
    this.#rows = new Map(rows.map((row) => [row.node_id, row]));
    this.#table.sorted(this.#wanted.sort, this.#wanted.descending);
    this.#table.set(rows);
    for (const id of this.#sparks.keys()) if (!this.#rows.has(id)) this.#sparks.delete(id);
    this.#showTotal(offset, rows.length, total);
    this.#table.element.hidden = rows.length === 0;
    this.#empty.textContent = rows.length > 0
      ? ""
      : this.#isFiltered() ? "No node matches." : "No node is enrolled yet. heliograph node enroll adds one.";
  }

  #total = null;

  #showTotal(offset, shown, total) {
    this.#pager.show(offset, shown, total);
    if (this.#total !== null && this.#total !== total) speak(`${countOf(total, "node")} found.`);
    this.#total = total;
  }

  /** Only what has changed comes: counts, rows, and `ids` where the window has others, or in another order. */
  #follow({ rows, ids, ...rest }) {
    for (const row of rows) this.#rows.set(row.node_id, row);
    const shown = (ids ?? [...this.#rows.keys()]).map((id) => this.#rows.get(id)).filter((row) => row !== undefined);
    this.#show({ ...rest, rows: shown });
  }

  #isFiltered() {
    const { text, tags, state, tenant } = this.#wanted;
    return Boolean(text || tags.length > 0 || state || tenant);
  }

  #drawTiles() {
    for (const state of STATES) {
      const number = make("span", { className: "number" }, "–");
      const pick = () => this.#change({ state: this.#wanted.state === state ? "" : state });
      const button = make(
        "button",
        {
          type: "button",
          title: `${state}: ${MEANINGS[state]}`,
          ariaPressed: "false",
          dataset: { word: state },
          onclick: pick,
        },
        number,
        make("span", { className: "word" }, state),
      );
      const part = make("span", { dataset: { word: state } });
      this.#tiles.set(state, { number, button, part });
      this.#counts.append(make("li", {}, button));
      this.#share.append(part);
    }
  }

  #showCounts(counts) {
    const all = STATES.reduce((sum, state) => sum + counts[state], 0);
    for (const [state, { number, button, part }] of this.#tiles) {
      number.textContent = countText(counts[state]);
      button.ariaPressed = String(this.#wanted.state === state);
      part.style.flexGrow = all === 0 ? "0" : String(counts[state] / all);
      part.hidden = counts[state] === 0;
    }
  }

  #columns() {
    const pick = (tag) => this.#wanted.tags.includes(tag) || this.#change({ tags: [...this.#wanted.tags, tag] });
    return [
      {
        title: "Node", sort: "name", className: "node",
        value: (row) => `${row.name}\n${row.node_id}`,
        draw: (row) => [
          make("a", { href: nodePath(row.node_id), title: row.node_id }, said(row.name ?? shortId(row.node_id))),
          row.name === null ? "" : make("span", { className: "id" }, shortId(row.node_id)),
        ],
      },
      { title: "State", sort: "state", value: (row) => row.state, draw: (row) => badge(row.state) },
      {
        title: "Tags",
        className: "wide",
        value: (row) => JSON.stringify(row.tags),
        draw: (row) => tagList(row.tags, pick),
      },
      {
        title: "Since",
        sort: "since",
        className: "when",
        value: (row) => String(row.since_ms),
        draw: (row) => since(row.since_ms, true),
      },
      {
        title: "Left because", sort: "left", className: "wide",
        value: (row) => (row.left === null ? "" : `${row.left.code} ${row.left.reason}`),
        draw: (row) => (
          row.left === null
            ? ""
            : [make("span", { className: "number" }, String(row.left.code)), " ", said(row.left.reason)]
        ),
      },
      {
        title: "Last call",
        sort: "last_call",
        className: "when middle",
        value: (row) => String(row.last_call_ms),
        draw: (row) => since(row.last_call_ms),
      },
      { title: "Calls", className: "number middle", value: (row) => countText(row.calls ?? 0) },
      {
        title: "Frames/s",
        sort: "frames_per_s",
        className: "number rate",
        value: (row) => `${row.frames_per_s} ${row.spark}`,
        draw: (row) => this.#rate(row),
      },
      {
        title: "Drops",
        sort: "drops",
        className: "number middle",
        hint: "frames that were dropped",
        value: (row) => countText(row.drops),
        draw: (row) => make("span", { className: row.drops > 0 ? "bad" : "" }, countText(row.drops)),
      },
      { title: "Tools", className: "number wide", value: (row) => countText(row.tools) },
      { title: "Tenant", className: "wide", value: (row) => row.tenant },
    ];
  }

  #rate(row) {
    let spark = this.#sparks.get(row.node_id);
    if (spark === undefined) this.#sparks.set(row.node_id, (spark = sparkline(row.spark)));
    else spark.show(row.spark);
    return [spark.element, make("span", {}, shortNumber(row.frames_per_s))];
  }

  // ---- filters ------------------------------------------------------------------------------------------------------

  #filters() {
    const { text, tenant } = this.#wanted;
    this.#search = make("input", {
      type: "search",
      value: text,
      placeholder: "Name or id",
      ariaLabel: "Find by name or id",
      dataset: { search: "" },
      autocomplete: "off",
      spellcheck: false,
    });
    this.#tenant = make("input", {
      type: "search",
      value: tenant,
      placeholder: "Tenant",
      ariaLabel: "Tenant",
      autocomplete: "off",
      spellcheck: false,
      className: "short",
    });
    let typing = null;
    const typed = () => {
      clearTimeout(typing);
      typing = setTimeout(
        () => this.#signal.aborted || this.#change(
          { text: this.#search.value.trim(), tenant: this.#tenant.value.trim() },
          true,
        ),
        TYPING_MS,
      );
    };
    this.#search.oninput = this.#tenant.oninput = typed;
    this.#tagInput = make("input", {
      type: "text",
      placeholder: "key=value",
      ariaLabel: "Add a tag that nodes must have",
      autocomplete: "off",
      spellcheck: false,
      pattern: "[a-z0-9][a-z0-9_\\-]{0,62}=[A-Za-z0-9._\\-]{1,63}",
      title: "key=value",
    });
    const tagForm = make(
      "form",
      { className: "inline" },
      this.#tagInput,
      make("button", { type: "submit" }, "Add tag"),
    );
    tagForm.onsubmit = (event) => {
      event.preventDefault();
      const tag = this.#tagInput.value.trim();
      if (tag && !this.#wanted.tags.includes(tag)) this.#change({ tags: [...this.#wanted.tags, tag] });
      this.#tagInput.value = "";
    };
    return make(
      "div",
      { className: "filters", role: "search", ariaLabel: "Filter nodes" },
      this.#search,
      this.#tenant,
      tagForm,
      this.#tags,
    );
  }

  #showTags() {
    const chips = this.#wanted.tags.map((tag) => {
      const remove = () => {
        this.#change({ tags: this.#wanted.tags.filter((one) => one !== tag) });
        this.#search.focus();
      };
      return make(
        "li",
        {},
        make(
          "button",
          { type: "button", className: "tag", ariaLabel: `Remove the tag ${tag}`, onclick: remove },
          said(tag),
          " ×",
        ),
      );
    });
    this.#tags.replaceChildren(...chips);
  }

  #foot() {
    const sizes = make(
      "select",
      { ariaLabel: "Rows on a page" },
      ...SIZES.map((size) => make("option", { value: String(size) }, `${size} rows`)),
    );
    sizes.value = String(this.#wanted.limit);
    sizes.onchange = () => document.dispatchEvent(new CustomEvent("console:go", { detail: withLimit(sizes.value) }));
    return make("div", { className: "foot" }, this.#pager.element, sizes);
  }
}

function withLimit(limit) {
  const fields = new URLSearchParams(location.search);
  fields.set("limit", limit);
  fields.delete("offset");
  return `/console/fleet?${fields}`;
}

/** From the address; what makes no sense there is left out. */
function wantedOf(query) {
  const sort = query.get("sort") ?? "name";
  const limit = Number(query.get("limit") ?? SIZE);
  const offset = Number(query.get("offset") ?? 0);
  return {
    text: query.get("text") ?? "",
    tags: query.getAll("tag"),
    state: STATES.includes(query.get("state")) ? query.get("state") : "",
    tenant: query.get("tenant") ?? "",
    sort: sort.replace(/^-/, ""),
    descending: sort.startsWith("-"),
    limit: SIZES.includes(limit) ? limit : SIZE,
    offset: Number.isSafeInteger(offset) && offset > 0 ? offset : 0,
  };
}
