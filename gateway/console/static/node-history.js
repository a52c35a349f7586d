/** The command log of a node: which commands there were, and what became of them. Never arguments or results. */

import { ask } from "./api.js";
import { since } from "./clock.js";
import { attempt, make } from "./dom.js";
import { countOf } from "./formats.js";
import { card, note, valueOf } from "./parts.js";
import { DataTable } from "./table.js";

const LOOKS_MAX = 20; // at a thousand events each; a longer history is for `heliograph log`
const SHOWN_MAX = 200;

/** It is read when somebody opens it. */
export function historyCard(nodeId, signal) {
  const body = make("div");
  const details = make(
    "details",
    { className: "history" },
    make("summary", {}, "Show the history of its commands"),
    body,
  );
  details.ontoggle = () => details.open && attempt(() => fill(body, nodeId, signal));
  return card("Command log", details);
}

async function fill(body, nodeId, signal) {
  body.replaceChildren(note("Reading …"));
  const { events, isWhole } = await read(nodeId, signal);
  const rows = events.slice(-SHOWN_MAX).reverse();
  if (rows.length === 0) {
    body.replaceChildren(note("No command was ever sent to it."));
    return;
  }
  const table = new DataTable({
    caption: "Commands, newest first",
    columns: COLUMNS,
    idOf: (row) => String(row.version),
  });
  table.set(rows);
  const shown = `The newest ${countOf(rows.length, "event")} of ${isWhole ? "" : "more than "}${events.length}.`;
  body.replaceChildren(
    table.element,
    note(rows.length === events.length && isWhole ? `${countOf(events.length, "event")}.` : shown),
  );
}

/** From the oldest on, as the gateway gives them; so the newest come last. */
async function read(nodeId, signal) {
  const events = [];
  for (let look = 0; look < LOOKS_MAX; look += 1) {
    const body = { node_id: nodeId };
    if (events.length > 0) body.after = events.at(-1).version;
    const { events: more } = await ask("history", body, signal);
    if (more.length === 0) return { events, isWhole: true };
    events.push(...more);
  }
  return { events, isWhole: false };
}

const KNOWN = new Set(["version", "at_ms", "event"]);

const COLUMNS = [
  { title: "#", className: "number", value: (row) => String(row.version) },
  { title: "When", className: "when", value: (row) => String(row.at_ms), draw: (row) => since(row.at_ms) },
  { title: "Event", className: "when", value: (row) => row.event.replace(/@\d+$/, "").replaceAll("_", " ") },
  {
    title: "About", value: (row) => JSON.stringify(row),
    draw: (row) => Object.entries(row).filter(([name, value]) => !KNOWN.has(name) && value !== null).flatMap(
      ([name, value], at) => [
        at > 0 ? " · " : "",
        `${name} `,
        valueOf(value),
      ],
    ),
  },
];
