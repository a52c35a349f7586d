/** Lines of the audit as a table: what happened, who did it, to which node, what was decided, and what it cost. */

import { since } from "./clock.js";
import { make } from "./dom.js";
import { moneyText, shortId, spanText } from "./formats.js";
import { agentLink, badge, code, emptyNote, facts, nodeLink, said, toolName, valueOf } from "./parts.js";

const WORDS = {
  tool_call: "call",
  space_call: "room call",
  project_call: "project call",
  operator_action: "operator",
  node_came: "came",
  node_went: "went",
};
const CLASSES = {
  When: "when",
  Event: "wide",
  Who: "middle",
  Node: "named middle",
  Cost: "number middle",
  Took: "number wide",
};
const COLUMNS = ["When", "Event", "Who", "What", "Node", "Decision", "Cost", "Took"];

/**
 * `without` is a column that would say the same in every line. `show` and `append` take lines newest first; `add` puts
 * newer ones on top and lets the oldest go.
 */
export function auditTable({ caption, without = "" }) {
  const titles = COLUMNS.filter((title) => title !== without);
  const body = make("tbody");
  const head = make("tr", {}, ...titles.map((title) => make("th", { scope: "col", className: classOf(title) }, title)));
  const table = make(
    "table",
    { className: "audit" },
    make("caption", { className: "hidden" }, caption),
    make("thead", {}, head),
    body,
  );
  const element = make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: caption }, table);
  const empty = emptyNote("No lines.");
  const whole = make("div", {}, element, empty);
  const ids = new Set();

  const rowsOf = (lines) => lines.filter(({ id }) => !ids.has(id) && ids.add(id)).map((line) => rowOf(line, titles));
  const look = () => ([element.hidden, empty.hidden] = [body.children.length === 0, body.children.length > 0]);

  return {
    element: whole,
    get length() {
      return ids.size;
    },
    show(lines) {
      ids.clear();
      body.replaceChildren(...rowsOf(lines));
      look();
    },
    append(lines) {
      body.append(...rowsOf(lines));
      look();
    },
    /** `lines` as they happened; those that are older than what is shown belong further down, and are left out. */
    add(lines, max) {
      const newest = Math.max(-1, ...ids);
      const fresh = rowsOf(lines.filter(({ id }) => id > newest));
      for (const row of fresh) {
        row.classList.add("fresh");
        body.prepend(row);
      }
      while (body.querySelectorAll("tr.line").length > max) {
        const last = [...body.querySelectorAll("tr.line")].at(-1);
        if (last.nextElementSibling !== null) last.nextElementSibling.remove();
        ids.delete(Number(last.dataset.line));
        last.remove();
      }
      look();
    },
  };
}

const classOf = (title) => CLASSES[title] ?? "";

function rowOf(line, titles) {
  const cells = {
    When: when(line),
    Event: eventOf(line),
    Who: whoOf(line),
    What: whatOf(line),
    Node: nodeOf(line),
    Decision: decisionOf(line),
    Cost: line.price_micros > 0 ? moneyText(line.price_micros) : "",
    Took: Number.isFinite(line.took_ms) ? spanText(line.took_ms) : "",
  };
  const row = make("tr", { className: "line", dataset: { line: String(line.id) } });
  row.append(...titles.map((title) => make("td", { className: classOf(title) }, cells[title])));
  row.firstChild.prepend(opener(row, line, titles.length));
  return row;
}

/** All fields of a line, below it. */
function opener(row, line, columns) {
  const toggle = make(
    "button",
    { type: "button", className: "plain opener", ariaLabel: `All fields of line ${line.id}`, ariaExpanded: "false" },
    "▸",
  );
  toggle.onclick = () => {
    const isOpen = toggle.ariaExpanded === "true";
    if (isOpen) row.nextElementSibling.remove();
    else row.after(make("tr", { className: "fields-of-line" }, make("td", { colSpan: columns }, fieldsOf(line))));
    toggle.ariaExpanded = String(!isOpen);
    toggle.textContent = isOpen ? "▸" : "▾";
  };
  return toggle;
}

/** Those that have a value. */
export function fieldsOf(line) {
  const entries = Object.entries(line).filter(([, value]) => value !== null);
  return facts(...entries.map(([name, value]) => [name, valueOf(value)]));
}

const when = (line) => since(Date.parse(line.at));
const eventOf = (line) => make("span", { title: line.event }, WORDS[line.event] ?? said(line.event));

function whoOf({ sub, member_id: member }) {
  if (typeof sub === "string") return sub.startsWith("agent_") ? agentLink(sub) : said(shortId(sub));
  return member ? code(shortId(member)) : "";
}

function whatOf(line) {
  if (line.action) return make("span", {}, said(line.action));
  if (line.tool) return toolName(line.tool);
  if (line.event === "node_came" || line.event === "node_went") return `the node ${WORDS[line.event]}`;
  return line.space_id ? code(line.space_id) : "";
}

function nodeOf(line) {
  const nodeId = line.node_id ?? line.target?.node_id;
  return nodeId ? nodeLink(nodeId, line.node_name ?? line.target?.name) : "";
}

function decisionOf({ decision, reason, code: codeOf }) {
  const parts = [decision ? badge(decision) : "", reason ? said(reason) : codeOf ? said(String(codeOf)) : ""];
  return make("span", { className: "decision" }, ...parts);
}
