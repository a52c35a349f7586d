/** The columns of the fleet's table. Narrow screens leave those out that are `middle` or `wide`. */

import { since } from "./clock.js";
import { make } from "./dom.js";
import { countText, shortId, shortNumber } from "./formats.js";
import { badge, nodePath, said, tagList } from "./parts.js";
import { sparkline } from "./sparkline.js";

/** `pick` gets a tag that was clicked. `sparks` are the lines that are drawn already, by node. */
export function columnsOf(pick, sparks) {
  return [
    {
      title: "Node",
      sort: "name",
      className: "node",
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
      title: "Left because",
      sort: "left",
      className: "wide unbroken",
      value: (row) => (row.left === null ? "" : `${row.left.code} ${row.left.reason}`),
    },
    {
      title: "Last call",
      sort: "last_call",
      className: "when middle",
      value: (row) => String(row.last_call_ms),
      draw: (row) => since(row.last_call_ms),
    },
    { title: "Calls", className: "number middle", value: (row) => countText(row.calls) },
    {
      title: "Frames/s",
      sort: "frames_per_s",
      className: "number rate",
      value: (row) => `${row.frames_per_s} ${row.spark}`,
      draw: (row) => [sparkOf(row, sparks), make("span", {}, shortNumber(row.frames_per_s))],
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

function sparkOf({ node_id: nodeId, spark: values }, sparks) {
  const known = sparks.get(nodeId);
  if (known !== undefined) {
    known.show(values);
    return known.element;
  }
  const made = sparkline(values);
  sparks.set(nodeId, made);
  return made.element;
}
