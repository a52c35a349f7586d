/** Node: what it is and does, live; its tools to try; what happened to it; and what operators do to it. */

import { ask } from "./api.js";
import { moment, since } from "./clock.js";
import { drawnSeldom, make } from "./dom.js";
import { follow } from "./feed.js";
import { countText, shortNumber } from "./formats.js";
import { auditTable } from "./audit-table.js";
import { capabilityCard } from "./capability.js";
import { NodeActions } from "./node-actions.js";
import { NodeCharts } from "./node-charts.js";
import { historyCard } from "./node-history.js";
import {
  agentLink, badge, card, code, facts, note, pageHead, pathOf, replaceIfOther, said, tagList, tile, toolName, write,
} from "./parts.js";
import { sparkline } from "./sparkline.js";
import { DataTable } from "./table.js";
import { persist, repeat } from "./waiting.js";

const LOOK_MS = 5_000; // between looks at what its capabilities are used for
const SOON_MS = 300; // after its row has changed, for what it is then
const LINES_MAX = 12;
const HERE = "here"; // the only process that there is

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
        node: ({ row }) => (row === null ? soon() : this.#takeRow(row, soon)),
        audit: ({ lines }) => this.#parts.lines.add(lines, LINES_MAX),
        again: () => this.#look(),
      },
      this.#signal,
    );
    const looks = repeat(() => this.#look(), LOOK_MS, this.#signal);
    await Promise.all([feed, looks]);
  }

  async #look() {
    this.#show(await ask("node", { node_id: this.#nodeId }, this.#signal));
  }

  /** Its row of the fleet, as it is now; what a session brings along is asked for when there is another. */
  #takeRow(row, soon) {
    if (
      row.state !== this.#node.state ||
      row.since_ms !== this.#node.since_ms ||
      row.tools !== this.#node.tools
    ) soon();
    this.#show({ ...this.#node, ...row });
  }

  // ---- the page's parts, once ---------------------------------------------------------------------------------------

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
      moreCapabilities: note(),
      streams: new DataTable({
        caption: "Streams of this node",
        columns: STREAM_COLUMNS,
        idOf: (row) => row.stream_id,
      }),
      someStreams: note(),
      certificates: make("ul", { className: "plain-list" }),
      lines: auditTable({ caption: "What happened last", without: "Node" }),
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
      parts.moreCapabilities,
      card("Open streams", parts.streams.element, parts.someStreams),
      card("Last calls and events", parts.lines.element, make("p", {}, all)),
      historyCard(this.#nodeId, this.#signal),
      card("Certificates", parts.certificates),
    );
    if (hadFocus) head.querySelector("h1").focus({ preventScroll: true });
    this.#show(node);
  }

  // ---- what is known now --------------------------------------------------------------------------------------------

  #show(node) {
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
    parts.streams.set(node.streams);
    const { streams, streams_total: total } = node;
    parts.streams.element.hidden = streams.length === 0;
    const some = total > streams.length ? `${countText(total)} are open; ${countText(streams.length)} are shown.` : "";
    write(parts.someStreams, total === 0 ? "Nobody listens at present." : some);
    replaceIfOther(parts.certificates, JSON.stringify(node.certificates), () => certificateItems(node.certificates));
  }

  #showFacts(node) {
    const { state, tenant, agent, owner, epoch, since_ms: sinceMs, expires_at_ms: expiresMs, left } = node;
    const known = [state, tenant, agent, owner, epoch, sinceMs, expiresMs, left];
    replaceIfOther(this.#parts.facts, JSON.stringify(known), () => [
      facts(
        ["Node id", code(node.node_id)],
        ["Tenant", said(tenant)],
        [state === "live" ? "Connected for" : "Since", since(sinceMs, true)],
        ["Left because", left === null ? null : `${left.code} ${left.reason}`],
        ["Program", agent === null ? null : said(agent)],
        ["Enrolled", moment(node.enrolled_at_ms)],
        ["Manifest ends", moment(expiresMs)],
        ["Session", epoch === null ? null : `epoch ${epoch}`],
        ["Held by", owner === null || owner === HERE ? null : said(owner)],
      ),
    ]);
  }

  #showTraffic(node) {
    this.#parts.spark.show(node.spark);
    const known = [node.frames_per_s, node.calls, node.drops, node.last_call_ms];
    replaceIfOther(this.#parts.traffic, JSON.stringify(known), () => [
      tile(shortNumber(node.frames_per_s), "frames/s", this.#parts.spark.element),
      tile(countText(node.calls), "calls", make("span", { className: "note" }, "last ", since(node.last_call_ms))),
      tile(countText(node.drops), "dropped frames"),
    ]);
  }

  #cards = new Map();

  #showCapabilities(node) {
    const { capabilities } = node;
    const more = node.capabilities_total - capabilities.length;
    const keyOf = ({ kind, cap_id: capId }) => `${kind} ${capId}`;
    const keys = capabilities.map(keyOf);
    for (const capability of capabilities) {
      const key = keyOf(capability);
      if (!this.#cards.has(key)) this.#cards.set(key, capabilityCard(this.#nodeId, this.#signal));
      this.#cards.get(key).show(capability, node.state);
    }
    const left = more > 0 ? `${countText(more)} more are not shown.` : "";
    write(this.#parts.moreCapabilities, keys.length === 0 ? "This node has announced no capabilities." : left);
    replaceIfOther(
      this.#parts.capabilities,
      JSON.stringify(keys),
      () => keys.map((key) => this.#cards.get(key).element),
    );
  }
}

const STREAM_COLUMNS = [
  { title: "Agent", value: (row) => row.sub, draw: (row) => agentLink(row.sub) },
  { title: "Tool", className: "middle", value: (row) => row.tool, draw: (row) => toolName(row.tool) },
  { title: "Every", className: "number", value: (row) => `${countText(row.interval_ms)} ms` },
  {
    title: "Open for",
    className: "when",
    value: (row) => String(row.since_ms),
    draw: (row) => since(row.since_ms, true),
  },
];

function certificateItems(certificates) {
  if (certificates.length === 0) return [make("li", { className: "note" }, "None is known.")];
  return certificates.map((one) => {
    const { kid, not_before_ms: fromMs, not_after_ms: toMs } = one;
    return make("li", {}, code(kid), " from ", moment(fromMs), " to ", moment(toMs));
  });
}
