/** Upstreams: the MCP servers behind the gateway, whether they are up, and how much they are used. */

import { ask } from "./api.js";
import { since } from "./clock.js";
import { countText } from "./formats.js";
import { badge, code, emptyNote, pageHead, said } from "./parts.js";
import { DataTable } from "./table.js";
import { repeat } from "./waiting.js";

const LOOK_MS = 5_000;

export async function open(place, { signal }) {
  const table = new DataTable({ caption: "Upstreams", columns: COLUMNS, idOf: (row) => row.name });
  const empty = emptyNote("No MCP server is behind this gateway. The policy names them: ", code("[[upstreams]]"));
  [table.element.hidden, empty.hidden] = [true, true];
  place.append(pageHead("Upstreams"), table.element, empty);
  await repeat(async () => {
    const { upstreams } = await ask("upstreams", {}, signal);
    table.set(upstreams);
    [table.element.hidden, empty.hidden] = [upstreams.length === 0, upstreams.length > 0];
  }, LOOK_MS, signal);
}

const COLUMNS = [
  { title: "Name", className: "named", value: (row) => row.name, draw: (row) => said(row.name) },
  { title: "State", value: (row) => row.state, draw: (row) => badge(row.state) },
  {
    title: "For",
    className: "when middle",
    value: (row) => String(row.since_ms),
    draw: (row) => since(row.since_ms, true),
  },
  { title: "Transport", className: "middle", value: (row) => row.transport },
  { title: "Tenants", className: "middle", value: (row) => row.tenants.join(", ") },
  { title: "Tools", className: "number", value: (row) => countText(row.tools) },
  { title: "Calls", className: "number", value: (row) => countText(row.calls) },
  { title: "Last error", value: (row) => row.last_error ?? "", draw: (row) => said(row.last_error ?? "") },
];
