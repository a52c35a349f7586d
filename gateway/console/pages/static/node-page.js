/** Node: what it is and does, live; its tools to try; what happened to it; and what operators do to it. */

import { ask } from "./api.js";
import { learn, moment, since } from "./clock.js";
import { drawnSeldom, make } from "./dom.js";
import { follow } from "./feed.js";
import { countText, shortNumber } from "./formats.js";
import { auditTable } from "./audit-table.js";
import { capabilityCard } from "./capability.js";
import { NodeActions } from "./node-actions.js";
import { NodeCharts } from "./node-charts.js";
import { historyCard } from "./node-history.js";
import { agentLink, badge, card, code, facts, note, pageHead, pathOf, said, tagList, toolName } from "./parts.js";
import { sparkline } from "./sparkline.js";
import { DataTable } from "./table.js";
import { persist, repeat } from "./waiting.js";

const LOOK_MS = 5_000; // between looks at what its capabilities are used for
const SOON_MS = 400; // after a line in the audit, for what it has changed
const LINES_MAX = 12;

export async function open(place, { argument, signal, title }) {
  await new NodePage(place, argument, signal, title).run();
}

class NodePage {
  #place;
  #nodeId;
  #signal;
  #title;
  #node = null;
  #parts = null;

  constructor(place, nodeId, signal, title) {
    [this.#place, this.#nodeId, this.#signal, this.#title] = [place, nodeId, signal, title];
    place.append(pageHead("Node"));
  }

  async run() {
    const node = await persist(() => ask("node", { node_id: this.#nodeId }, this.#signal), this.#signal);
    this.#draw(node);
    const soon = drawnSeldom(() => this.#signal.aborted || this.#look().catch(() => undefined), SOON_MS);
    const feed = follow(
      { node: this.#nodeId, audit: { node: this.#nodeId } },
      {
        frame: (frame) => this.#parts.charts.take(frame),
        audit: (event) => (this.#takeLines(event), soon()),
        again: () => this.#look(),
      },
      this.#signal,
    );
    const looks = repeat(() => this.#look(), LOOK_MS, this.#signal);
    await Promise.all([feed, looks, this.#firstLines()]);
  }

  async #look() {
    this.#show(await ask("node", { node_id: this.#nodeId }, this.#signal));
  }

  async #firstLines() {
    const { lines } = await persist(() => ask("audit", { node: this.#nodeId, limit: String(LINES_MAX) }, this.#signal), this.#signal);
    this.#parts.lines.show(lines);
  }

  #takeLines(event) {
    this.#parts.lines.add(event.lines ?? [event], LINES_MAX);
  }

  // ---- the page's parts, once -----------------------------------------------------------------------------------------

  #draw(node) {
    const heading = this.#place.querySelector("h1");
    const hadFocus = document.activeElement === heading;
    const parts = {
      name: make("bdi"),
      state: make("span", { className: "state" }),
      tags: make("div"),
      actions: new NodeActions(this.#signal, () => this.#look()),
      charts: new NodeCharts(this.#signal),
      facts: make("div"),
      traffic: make("div", { className: "traffic" }),
      spark: sparkline([]),
      capabilities: make("div", { className: "capabilities" }),
      streams: new DataTable({ caption: "Open streams", columns: STREAM_COLUMNS, idOf: (row) => row.stream_id }),
      noStreams: note("Nobody listens at present."),
      certificates: make("ul", { className: "plain-list" }),
      lines: auditTable({ caption: "What happened last", hasNode: false }),
    };
    this.#parts = parts;
    const all = make("a", { href: pathOf("log", { node: this.#nodeId }) }, "All of it in the log");
    const head = pageHead(parts.name, parts.state, parts.tags, parts.actions.element);
    this.#place.replaceChildren(
      head,
      make(
        "div",
        { className: "columns-2" },
        card("Now", parts.charts.element),
        make("div", { className: "stack" }, card("About", parts.facts), card("Traffic", parts.traffic)),
      ),
      make("h2", { className: "section" }, "Capabilities"),
      parts.capabilities,
      card("Open streams", parts.streams.element, parts.noStreams),
      card("Last calls and events", parts.lines.element, make("p", {}, all)),
      historyCard(this.#nodeId, this.#signal),
      card("Certificates", parts.certificates),
    );
    if (hadFocus) head.querySelector("h1").focus({ preventScroll: true });
    this.#show(node);
  }

  // ---- what is known now ----------------------------------------------------------------------------------------------

  #show(node) {
    learn(node.now_ms);
    this.#node = node;
    const parts = this.#parts;
    const name = node.name ?? node.node_id;
    this.#title(name);
    write(parts.name, name);
    replaceIfOther(parts.state, node.state, () => [badge(node.state)]);
    replaceIfOther(parts.tags, JSON.stringify(node.tags), () => [tagList(node.tags)]);
    parts.actions.show(node);
    parts.charts.show(node);
    this.#showFacts(node);
    this.#showTraffic(node);
    this.#showCapabilities(node);
    parts.streams.set(node.streams ?? []);
    const hasStreams = (node.streams ?? []).length > 0;
    [parts.streams.element.hidden, parts.noStreams.hidden] = [!hasStreams, hasStreams];
    replaceIfOther(parts.certificates, JSON.stringify(node.certificates), () => certificateItems(node.certificates ?? []));
  }

  #showFacts(node) {
    const known = [node.tenant, node.agent, node.owner, node.epoch, node.since_ms, node.expires_at_ms, node.left?.code];
    replaceIfOther(this.#parts.facts, JSON.stringify(known), () => [
      facts(
        ["Node id", code(node.node_id)],
        ["Tenant", said(node.tenant)],
        [node.state === "live" ? "Connected for" : "Since", since(node.since_ms, true)],
        ["Left because", node.left ? `${node.left.code} ${node.left.reason}` : null],
        ["Program", node.agent ? said(node.agent) : null],
        ["Enrolled", moment(node.enrolled_at_ms)],
        ["Manifest ends", moment(node.expires_at_ms)],
        ["Session", node.epoch === null || node.epoch === undefined ? null : `epoch ${node.epoch}`],
        ["Held by", node.owner ? said(String(node.owner)) : null],
      ),
    ]);
  }

  #showTraffic(node) {
    this.#parts.spark.show(node.spark ?? []);
    const known = [node.frames_per_s, node.calls, node.drops, node.last_call_ms];
    replaceIfOther(this.#parts.traffic, JSON.stringify(known), () => [
      tile(shortNumber(node.frames_per_s ?? 0), "frames/s", this.#parts.spark.element),
      tile(countText(node.calls ?? 0), "calls", make("span", { className: "note" }, "last ", since(node.last_call_ms))),
      tile(countText(node.drops ?? 0), "dropped frames"),
    ]);
  }

  #cards = new Map();

  #showCapabilities(node) {
    const capabilities = node.capabilities ?? [];
    const keys = capabilities.map((one) => one.cap_id);
    for (const capability of capabilities) {
      if (!this.#cards.has(capability.cap_id)) this.#cards.set(capability.cap_id, capabilityCard(this.#nodeId, this.#signal));
      this.#cards.get(capability.cap_id).show(capability, node.state);
    }
    replaceIfOther(this.#parts.capabilities, JSON.stringify(keys), () =>
      keys.length === 0 ? [note("This node has announced no capabilities.")] : keys.map((key) => this.#cards.get(key).element),
    );
  }
}

const STREAM_COLUMNS = [
  { title: "Agent", value: (row) => row.sub, draw: (row) => agentLink(row.sub) },
  { title: "Tool", className: "middle", value: (row) => row.tool, draw: (row) => toolName(row.tool) },
  { title: "Every", className: "number", value: (row) => `${countText(row.interval_ms)} ms` },
  { title: "Open for", className: "when", value: (row) => String(row.since_ms), draw: (row) => since(row.since_ms, true) },
];

const tile = (number, word, ...more) => make("div", { className: "tile" }, make("span", { className: "number" }, number), make("span", { className: "word" }, word), ...more);

function certificateItems(certificates) {
  if (certificates.length === 0) return [make("li", { className: "note" }, "None is known.")];
  return certificates.map((one) => {
    const endsMs = typeof one === "number" ? one : (one.ends_ms ?? one.ends_at_ms ?? one.not_after_ms ?? null);
    const more = typeof one === "object" && one !== null ? Object.entries(one).filter(([, value]) => typeof value === "string") : [];
    return make("li", {}, "ends ", moment(endsMs), ...more.flatMap(([key, value]) => [` · ${key} `, code(value)]));
  });
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Only where it is another: what the person selects, or has the focus on, stays. */
function replaceIfOther(element, key, draw) {
  if (element.dataset.key === key) return;
  element.dataset.key = key;
  element.replaceChildren(...draw());
}
