/** Streams: which telemetry streams are open, on which nodes, for whom. */

import { ask } from "./api.js";
import { since } from "./clock.js";
import { make } from "./dom.js";
import { countOf, countText } from "./formats.js";
import { agentLink, code, emptyNote, nodeLink, note, pageHead, toolName, write } from "./parts.js";
import { DataTable } from "./table.js";
import { repeat } from "./waiting.js";

const LOOK_MS = 5_000;

export async function open(place, { signal }) {
  const total = note();
  const empty = emptyNote("No stream is open. An agent opens one with a tool that ends in .subscribe.");
  const table = new DataTable({ caption: "Open streams", columns: COLUMNS, idOf: (row) => row.stream_id });
  [table.element.hidden, empty.hidden] = [true, true];
  place.append(pageHead("Streams"), total, table.element, empty);
  await repeat(async () => {
    const { streams, total: all } = await ask("streams", {}, signal);
    table.set(streams);
    [table.element.hidden, empty.hidden] = [streams.length === 0, streams.length > 0];
    const text = streams.length < all
      ? `${countOf(all, "stream")} are open; ${countText(streams.length)} are shown.`
      : all === 1 ? "1 stream is open." : `${countOf(all, "stream")} are open.`;
    write(total, all === 0 ? "" : text);
  }, LOOK_MS, signal);
}

const COLUMNS = [
  {
    title: "Node",
    className: "named",
    value: (row) => `${row.node_id} ${row.node_name}`,
    draw: (row) => nodeLink(row.node_id, row.node_name),
  },
  { title: "Agent", value: (row) => row.sub, draw: (row) => agentLink(row.sub) },
  { title: "Tool", className: "wide", value: (row) => row.tool, draw: (row) => toolName(row.tool) },
  { title: "Every", className: "number", value: (row) => `${countText(row.interval_ms)} ms` },
  {
    title: "Open for",
    className: "when",
    value: (row) => String(row.since_ms),
    draw: (row) => since(row.since_ms, true),
  },
  { title: "Stream", className: "wide", value: (row) => row.stream_id, draw: (row) => code(row.stream_id) },
];
