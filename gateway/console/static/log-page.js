/** Log: the kept audit, filtered, followed and exported. Lines never have arguments or results. */

import { ask, Refused, send, Unreachable } from "./api.js";
import { auditTable } from "./audit-table.js";
import { attempt, make, notify } from "./dom.js";
import { follow } from "./feed.js";
import { bytesText, countText } from "./formats.js";
import { goTo, note, pageHead, pathOf } from "./parts.js";
import { processNote } from "./process-note.js";
import { persist } from "./waiting.js";

const PAGE_LINES = 100;
const FOLLOWED_LINES_MAX = 1_000; // on the page; older ones go, and are found again without following
const FILTERS = ["agent", "tool", "node", "reason", "decision", "event", "tenant", "since", "until"];
const EVENTS = ["tool_call", "operator_action", "node_came", "node_went", "space_call", "project_call"];
const DECISIONS = ["answered", "refused", "streaming", "abandoned"];
const REASONS = [
  "token", "scope", "tenant", "policy", "budget", "rate", "personal_data", "name", "node", "accept", "arguments",
  "manifest", "offline", "deadline", "capability_limit", "internal",
];
const SPANS = [
  ["", "any time"],
  ["1h", "the last hour"],
  ["24h", "the last day"],
  ["7d", "the last week"],
  ["30d", "the last month"],
];

export async function open(place, { query, signal }) {
  await new LogPage(place, query, signal).run();
}

class LogPage {
  #signal;
  #wanted;
  #table = auditTable({ caption: "Lines of the audit, newest first" });
  #older = make("button", { type: "button", hidden: true, onclick: () => attempt(() => this.#more()) }, "Older lines");
  #next = null;
  #isExporting = false;
  #isFollowing;
  #status = note();

  constructor(place, query, signal) {
    this.#signal = signal;
    this.#wanted = Object.fromEntries(FILTERS.map((name) => [name, query.get(name)]).filter(([, value]) => value));
    this.#isFollowing = query.get("follow") === "yes";
    const followed = make(
      "button",
      {
        type: "button",
        ariaPressed: String(this.#isFollowing),
        className: "toggle",
        onclick: () => this.#go({}, !this.#isFollowing),
      },
      "Follow",
    );
    const exported = make("button", { type: "button", onclick: () => attempt(() => this.#export()) }, "Export");
    place.append(
      pageHead("Log", make("div", { className: "actions" }, followed, exported)),
      this.#filters(),
      processNote("Lines", signal),
      this.#table.element,
      make("p", { className: "row" }, this.#older, this.#status),
    );
  }

  async run() {
    const { lines, next } = await persist(() => ask("audit", this.#body(), this.#signal), this.#signal);
    this.#table.show(lines);
    this.#seek(next, lines.length);
    if (!this.#isFollowing) return;
    let newest = lines[0]?.id ?? 0;
    const take = (found) => {
      newest = Math.max(newest, ...found.map(({ id }) => id));
      this.#table.add(found, FOLLOWED_LINES_MAX);
      this.#seek(next, lines.length);
    };
    // What came while the feed was not there, or was more than it tells. Of more than the page holds, the newest: who
    // asked for the oldest would never catch up with a gateway that writes more.
    const again = async () => {
      const last = await ask("audit", { ...this.#wanted, limit: FOLLOWED_LINES_MAX }, this.#signal);
      take(last.lines.reverse());
    };
    await follow(
      { audit: this.#filtersOf() },
      { audit: ({ lines: found, skipped }) => (skipped ? again() : take(found)), again },
      this.#signal,
    );
  }

  /** A feed has no times: all that comes is new. */
  #filtersOf() {
    return Object.fromEntries(Object.entries(this.#wanted).filter(([name]) => name !== "since" && name !== "until"));
  }

  #body() {
    return { ...this.#wanted, limit: PAGE_LINES };
  }

  async #more() {
    const { lines, next } = await ask("audit", { ...this.#body(), before: this.#next }, this.#signal);
    this.#table.append(lines);
    this.#seek(next, lines.length);
  }

  #seek(next, found) {
    this.#next = next;
    this.#older.hidden = next === null || this.#isFollowing;
    this.#status.textContent = this.#isFollowing
      ? "New lines come on top as they are written."
      : next !== null && found === 0
        ? "Nothing yet in what was searched; older lines may match."
        : `${countText(this.#table.length)} shown.`;
  }

  // ---- filters ------------------------------------------------------------------------------------------------------

  #go(changes, isFollowing = this.#isFollowing) {
    const address = pathOf("log", { ...this.#wanted, ...changes, follow: isFollowing ? "yes" : "" });
    goTo(address);
  }

  #filters() {
    const reasons = make("datalist", { id: "reasons" }, ...REASONS.map((value) => make("option", { value })));
    const text = (name, label, placeholder) => make("input", {
      type: "search",
      name,
      value: this.#wanted[name] ?? "",
      placeholder,
      ariaLabel: label,
      autocomplete: "off",
      spellcheck: false,
    });
    const reason = text("reason", "Reason of a refusal", "Reason");
    reason.setAttribute("list", reasons.id);
    const agent = text("agent", "Agent or operator", "Agent");
    agent.dataset.search = "";
    const form = make(
      "form",
      { className: "filters", role: "search", ariaLabel: "Filter lines" },
      agent,
      text("tool", "Tool", "Tool"),
      text("node", "Node id", "Node id"),
      reason,
      reasons,
      this.#select("decision", "Decision", [["", "any decision"], ...DECISIONS.map((one) => [one, one])]),
      this.#select("event", "Event", [["", "any event"], ...EVENTS.map((one) => [one, one.replaceAll("_", " ")])]),
      this.#select("since", "Time", SPANS),
      make("button", { type: "submit", className: "primary" }, "Search"),
      make(
        "button",
        { type: "button", onclick: () => this.#go(Object.fromEntries(FILTERS.map((name) => [name, ""]))) },
        "Clear",
      ),
    );
    form.onsubmit = (event) => {
      event.preventDefault();
      this.#go(Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, value.trim()])));
    };
    return form;
  }

  #select(name, label, options) {
    const wanted = this.#wanted[name] ?? "";
    const known = options.some(([value]) => value === wanted) ? options : [...options, [wanted, wanted]];
    const select = make(
      "select",
      { name, ariaLabel: label },
      ...known.map(([value, text]) => make("option", { value }, text)),
    );
    select.value = wanted;
    return select;
  }

  // ---- export -------------------------------------------------------------------------------------------------------

  /** All that the filters find, as JSON lines, into a file. */
  async #export() {
    if (this.#isExporting) return;
    this.#isExporting = true;
    try {
      const answer = await send("audit/export", this.#wanted, this.#signal);
      const chunks = [];
      let bytes = 0;
      for (const reader = answer.body.getReader(); ; ) {
        const { value, done } = await reader.read();
        if (done) break;
        chunks.push(value);
        bytes += value.length;
        this.#status.textContent = `${bytesText(bytes)} so far …`;
      }
      const url = URL.createObjectURL(new Blob(chunks, { type: "application/x-ndjson" }));
      const at = new Date().toISOString().slice(0, 19).replaceAll(":", "");
      make("a", { href: url, download: `audit-${at}.jsonl` }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
      notify(`Exported ${bytesText(bytes)}.`);
    } catch (error) {
      if (this.#signal.aborted) return; // the page was left
      if (error instanceof Refused || error instanceof Unreachable) throw error;
      throw new Error("The export broke off: it is not whole, and nothing was saved.");
    } finally {
      this.#isExporting = false;
      this.#status.textContent = "";
    }
  }
}
