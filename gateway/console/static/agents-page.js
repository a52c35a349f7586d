/** Agents: who spends what on what, how much of a budget is used, and what was refused and why. */

import { ask } from "./api.js";
import { since } from "./clock.js";
import { make } from "./dom.js";
import { countOf, countText, dateText, sumText } from "./formats.js";
import { agentLink, badge, bars, card, meter, note, pageHead, pathOf, said, toolName } from "./parts.js";
import { DataTable } from "./table.js";
import { repeat } from "./waiting.js";

const LOOK_MS = 15_000;
const SPANS = [["1h", "the last hour"], ["24h", "the last day"], ["7d", "the last week"], ["30d", "the last month"]];
const TOP = 8;

export async function open(place, { query, signal }) {
  const wanted = SPANS.some(([span]) => span === query.get("since")) ? query.get("since") : "24h";
  const span = make("select", { ariaLabel: "Time" }, ...SPANS.map(([value, text]) => make("option", { value }, text)));
  span.value = wanted;
  span.onchange = () => document.dispatchEvent(
    new CustomEvent("console:go", { detail: pathOf("agents", { since: span.value }) }),
  );
  const sums = make("div", { className: "tiles" });
  const overview = make("div", { className: "columns-3" });
  const table = new DataTable({ caption: "Agents", columns: COLUMNS, idOf: (row) => `${row.tenant} ${row.sub}` });
  const empty = note("No agent has called in this time.");
  const others = note();
  place.append(pageHead("Agents", span), sums, overview, table.element, empty, others);
  [table.element.hidden, empty.hidden] = [true, true];
  await repeat(async () => {
    const answer = await ask("agents", { since: wanted }, signal);
    const { agents } = answer;
    const sorted = agents.toSorted((one, other) => other.spent_micros - one.spent_micros || other.calls - one.calls);
    table.set(sorted);
    [table.element.hidden, empty.hidden] = [agents.length === 0, agents.length > 0];
    showSums(sums, agents);
    showOverview(overview, sorted);
    write(others, leftOut(answer, agents.length));
  }, LOOK_MS, signal);
}

function showSums(place, agents) {
  const sum = (name) => agents.reduce((total, agent) => total + agent[name], 0);
  const tile = (number, word) => make(
    "div",
    { className: "tile" },
    make("span", { className: "number" }, number),
    make("span", { className: "word" }, word),
  );
  replaceIfOther(place, [
    tile(countText(agents.length), agents.length === 1 ? "agent" : "agents"),
    tile(countText(sum("calls")), "calls"),
    tile(sumText(sum("spent_micros")), "spent"),
    tile(countText(sum("refused")), "refused"),
  ]);
}

function showOverview(place, agents) {
  const tools = new Map(), reasons = new Map();
  for (const { tools: used = [], refusals = {} } of agents) {
    for (const { tool, micros } of used) tools.set(tool, (tools.get(tool) ?? 0) + micros);
    for (const [reason, count] of Object.entries(refusals)) reasons.set(reason, (reasons.get(reason) ?? 0) + count);
  }
  const top = (map) => [...map].sort(([, one], [, other]) => other - one).slice(0, TOP);
  const reason = (word) => make("a", { href: pathOf("log", { reason: word, decision: "refused" }) }, said(word));
  const agent = (sub) => agentLink(sub);
  replaceIfOther(place, [
    card(
      "Who spends",
      bars(
        agents.filter((one) => one.spent_micros > 0).slice(0, TOP).map(
          (one) => [one.sub, one.spent_micros, sumText(one.spent_micros)],
        ),
        "Nobody has spent anything.",
        agent,
      ),
    ),
    card(
      "On what",
      bars(
        top(tools).filter(([, micros]) => micros > 0).map(([tool, micros]) => [tool, micros, sumText(micros)]),
        "Nothing was paid for.",
        toolName,
      ),
    ),
    card("Refused because", bars(top(reasons), "Nothing was refused.", reason)),
  ]);
}

/** What the table does not have, or does not know. */
function leftOut({ total, others, since_ms: sinceMs, counted_since_ms: countedMs }, shown) {
  const said = [];
  if (others) {
    const spent = sumText(others.spent_micros);
    said.push(`${countText(total - shown)} more agents made ${countOf(others.calls, "call")} and spent ${spent}.`);
  }
  if (countedMs === null) said.push("This gateway keeps no audit, from which agents are counted.");
  else if (countedMs > sinceMs) {
    said.push(`Counted from ${dateText(countedMs)} on: there is more than one look can count, or no older audit.`);
  }
  return said.join(" ");
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The same again is not drawn again: what has the focus keeps it. */
function replaceIfOther(place, children) {
  const next = make("div", {}, ...children);
  if (place.textContent !== next.textContent) place.replaceChildren(...next.childNodes);
}

const COLUMNS = [
  { title: "Agent", value: (row) => row.sub, draw: (row) => agentLink(row.sub) },
  { title: "Tenant", className: "middle", value: (row) => row.tenant },
  { title: "Calls", className: "number", value: (row) => countText(row.calls) },
  {
    title: "Refused",
    className: "number",
    value: (row) => countText(row.refused),
    draw: (row) => (row.refused > 0 ? make("span", { className: "bad" }, countText(row.refused)) : "0"),
  },
  { title: "Spent", className: "number", value: (row) => sumText(row.spent_micros) },
  {
    title: "Budget",
    className: "budget",
    value: (row) => JSON.stringify([row.budget?.used_micros, row.budget?.cap_micros]),
    draw: (row) => budgetMeter(row.budget),
  },
  {
    title: "Rate",
    className: "middle",
    value: (row) => JSON.stringify(row.budget?.rates ?? null),
    draw: (row) => rateMeter(row.budget),
  },
  {
    title: "Refused because",
    className: "wide",
    value: (row) => JSON.stringify(row.refusals),
    draw: (row) => reasonList(row.refusals ?? {}),
  },
  { title: "Last call", className: "when", value: (row) => String(row.last_ms), draw: (row) => since(row.last_ms) },
];

export function budgetMeter(budget) {
  if (!budget || budget.cap_micros === null || budget.cap_micros === undefined) {
    return make("span", { className: "note" }, "no limit");
  }
  const { used_micros: used = 0, cap_micros: cap } = budget;
  return meter(used, cap, `${sumText(used)} of ${sumText(cap)}`, "Budget used");
}

/** The rate that is used up most. */
function rateMeter(budget) {
  const rates = (budget?.rates ?? []).filter(({ cap }) => cap > 0);
  if (rates.length === 0) return make("span", { className: "note" }, "no limit");
  const tightest = rates.reduce((one, other) => (other.used / other.cap > one.used / one.cap ? other : one));
  return meter(
    tightest.used,
    tightest.cap,
    `${countText(tightest.used)} of ${countOf(tightest.cap, "call")}`,
    "Rate used",
  );
}

function reasonList(refusals) {
  const entries = Object.entries(refusals).sort(([, one], [, other]) => other - one);
  return make(
    "span",
    { className: "reasons" },
    ...entries.map(([reason, count]) => make("span", {}, badge(reason), ` ${countText(count)} `)),
  );
}
