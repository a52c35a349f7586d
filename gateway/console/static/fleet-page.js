/** Fleet: how many nodes there are and how they are, and a table of them that the gateway filters, sorts and cuts. */

import { ask } from "./api.js";
import { learn } from "./clock.js";
import { make } from "./dom.js";
import { follow } from "./feed.js";
import { columnsOf } from "./fleet-columns.js";
import { FleetCounts } from "./fleet-counts.js";
import { FleetFilters } from "./fleet-filters.js";
import { addressOf, bodyOf, isFiltered, SIZES, sortedBy, wantedOf } from "./fleet-query.js";
import { countOf } from "./formats.js";
import { code, emptyNote, pageHead, replaceIfOther } from "./parts.js";
import { speak } from "./spoken.js";
import { DataTable, Pager } from "./table.js";
import { persist } from "./waiting.js";

/** Why there are no rows, and what to do about it. */
const NOTHING = {
  get filtered() {
    return ["No node matches. ", make("a", { href: "/console/fleet" }, "Show all nodes")];
  },
  get nobody() {
    return ["No node is enrolled yet. On the machine of the gateway: ", code("heliograph node enroll")];
  },
};

export async function open(place, { query, signal }) {
  await new FleetPage(place, wantedOf(query), signal).run();
}

class FleetPage {
  #signal;
  #wanted;
  #round = null; // of the questions that hold now: aborted when others do
  #fail = null;
  #rows = new Map(); // node id → its row, in the order of the window
  #sparks = new Map(); // node id → its line
  #counts = new FleetCounts((state) => this.#change({ state: this.#wanted.state === state ? "" : state }));
  #filters;
  #table;
  #pager;
  #empty = emptyNote();
  #below;

  constructor(place, wanted, signal) {
    [this.#wanted, this.#signal] = [wanted, signal];
    this.#filters = new FleetFilters((what, isTyped) => this.#change(what, isTyped), signal);
    this.#table = new DataTable({
      caption: "Nodes",
      columns: columnsOf((tag) => this.#filters.pick(tag), this.#sparks),
      idOf: (row) => row.node_id,
      onSort: (by) => this.#change(sortedBy(this.#wanted, by)),
      className: "nodes",
    });
    this.#pager = new Pager((offset) => this.#change({ offset }));
    this.#below = this.#foot();
    const parts = [...this.#counts.elements, this.#filters.element, this.#table.element, this.#empty, this.#below];
    place.append(pageHead("Fleet"), ...parts);
  }

  /** Until the page is left; rejects with what cannot be shown. */
  run() {
    return new Promise((resolve, reject) => {
      this.#fail = reject;
      this.#signal.addEventListener("abort", resolve);
      this.#ask();
    });
  }

  // ---- asking -------------------------------------------------------------------------------------------------------

  /** The window that is wanted now, and then what changes in it. */
  async #ask(isSaid = false) {
    this.#round?.abort();
    this.#round = new AbortController();
    const signal = AbortSignal.any([this.#round.signal, this.#signal]);
    this.#filters.show(this.#wanted);
    const load = async () => this.#show(await ask("fleet", bodyOf(this.#wanted), signal));
    try {
      const total = await persist(load, signal);
      if (isSaid) speak(`${countOf(total, "node")} found.`);
      await follow({ fleet: bodyOf(this.#wanted) }, { fleet: (change) => this.#follow(change), again: load }, signal);
    } catch (error) {
      if (!signal.aborted) this.#fail(error);
    }
  }

  /** Whatever the person changes is in the address, so that it can be sent to somebody, and gone back from. */
  #change(what, isTyped = false) {
    this.#wanted = { ...this.#wanted, offset: 0, ...what };
    history[isTyped ? "replaceState" : "pushState"](null, "", addressOf(this.#wanted));
    this.#ask(true);
  }

  // ---- showing ------------------------------------------------------------------------------------------------------

  #show({ counts, total, offset, rows, now_ms: nowMs }) {
    const { state, sort, descending, limit } = this.#wanted;
    if (rows.length === 0 && total > 0 && offset > 0) {
      this.#change({ offset: Math.floor((total - 1) / limit) * limit }); // there are fewer now
      return total;
    }
    learn(nowMs);
    this.#counts.show(counts, state);
    this.#rows = new Map(rows.map((row) => [row.node_id, row]));
    for (const id of this.#sparks.keys()) if (!this.#rows.has(id)) this.#sparks.delete(id);
    this.#table.sorted(sort, descending);
    this.#table.set(rows);
    this.#table.element.hidden = rows.length === 0;
    this.#pager.show({ offset, shown: rows.length, total, limit });
    this.#below.hidden = total === 0;
    const why = rows.length > 0 ? "" : isFiltered(this.#wanted) ? "filtered" : "nobody";
    this.#empty.hidden = why === "";
    replaceIfOther(this.#empty, why, () => NOTHING[why] ?? []);
    return total;
  }

  /** Only what has changed comes: counts, rows, and `ids` where the window has others, or in another order. */
  #follow({ rows, ids = [...this.#rows.keys()], ...heading }) {
    const changed = new Map(rows.map((row) => [row.node_id, row]));
    const shown = ids.map((id) => changed.get(id) ?? this.#rows.get(id));
    this.#show({ ...heading, rows: shown.filter((row) => row !== undefined) });
  }

  #foot() {
    const options = SIZES.map((size) => make("option", { value: String(size) }, `${size} rows`));
    const sizes = make("select", { ariaLabel: "Rows on a page" }, ...options);
    sizes.value = String(this.#wanted.limit);
    sizes.onchange = () => this.#change({ limit: Number(sizes.value) });
    return make("div", { className: "foot" }, this.#pager.element, sizes);
  }
}
