/** Agents: who spends what on what, how much of a budget is used, and what was refused and why. Most spent first. */

import { ask } from "./api.js";
import { since } from "./clock.js";
import { make } from "./dom.js";
import { countOf, countText, dateText, sumText } from "./formats.js";
import {
  agentLink, badge, bars, card, emptyNote, goTo, meter, note, pageHead, pathOf, replaceIfOther, said, tile, toolName,
  write,
} from "./parts.js";
import { processNote } from "./process-note.js";
import { DataTable } from "./table.js";
import { repeat } from "./waiting.js";

const LOOK_MS = 15_000;
const SPANS = [["1h", "the last hour"], ["24h", "the last day"], ["7d", "the last week"], ["30d", "the last month"]];
const TOP = 8;
const NOT_KEPT = "Agents are counted from the audit, and this gateway keeps none: [audit] enabled is off.";

export async function open(place, { query, signal }) {
  const wanted = SPANS.some(([span]) => span === query.get("since")) ? query.get("since") : "24h";
  const span = make("select", { ariaLabel: "Time" }, ...SPANS.map(([value, text]) => make("option", { value }, text)));
  span.value = wanted;
  span.onchange = () => goTo(pathOf("agents", { since: span.value }));
  const sums = make("div", { className: "tiles" });
  const overview = make("div", { className: "columns-3" });
  const table = new DataTable({ caption: "Agents", columns: COLUMNS, idOf: (row) => `${row.tenant} ${row.sub}` });
  const empty = emptyNote();
  const others = note();
  const head = pageHead("Agents", span);
  place.append(head, sums, overview, table.element, empty, others, processNote("Calls and sums", signal));
  [table.element.hidden, empty.hidden] = [true, true];
  await repeat(async () => {
    const answer = await ask("agents", { since: wanted }, signal);
    const { agents } = answer;
    table.set(agents);
    [table.element.hidden, empty.hidden] = [agents.length === 0, agents.length > 0];
    write(empty, answer.is_kept ? "No agent has called in this time." : NOT_KEPT);
    showSums(sums, agents);
    showOverview(overview, agents);
    write(others, leftOut(answer, agents.length));
  }, LOOK_MS, signal);
}

function showSums(place, agents) {
  const sum = (name) => agents.reduce((total, agent) => total + agent[name], 0);
  const [calls, spent, refused] = [sum("calls"), sum("spent_micros"), sum("refused")];
  replaceIfOther(place, JSON.stringify([agents.length, calls, spent, refused]), () => [
    tile(countText(agents.length), agents.length === 1 ? "agent" : "agents"),
    tile(countText(calls), "calls"),
    tile(sumText(spent), "spent"),
    tile(countText(refused), "refused"),
  ]);
}

function showOverview(place, agents) {
  const tools = new Map(), reasons = new Map();
  for (const { tools: used, refusals } of agents) {
    for (const { tool, micros } of used) tools.set(tool, (tools.get(tool) ?? 0) + micros);
    for (const [reason, count] of Object.entries(refusals)) reasons.set(reason, (reasons.get(reason) ?? 0) + count);
  }
  const who = agents.map(({ sub, spent_micros: micros }) => [sub, micros]).filter(
    ([, micros]) => micros > 0,
  ).slice(0, TOP);
  const [what, why] = [largest(tools).filter(([, micros]) => micros > 0), largest(reasons)];
  const inMoney = ([name, micros]) => [name, micros, sumText(micros)];
  const inLog = (reason) => make("a", { href: pathOf("log", { reason, decision: "refused" }) }, said(reason));
  replaceIfOther(place, JSON.stringify([who, what, why]), () => [
    card("Who spends", bars(who.map(inMoney), "Nobody has spent anything.", agentLink)),
    card("On what", bars(what.map(inMoney), "Nothing was paid for.", toolName)),
    card("Refused because", bars(why, "Nothing was refused.", inLog)),
  ]);
}

const largest = (map) => [...map].sort(([, one], [, other]) => other - one).slice(0, TOP);

/** What the table does not have, or does not know. */
function leftOut({ total, others, since_ms: sinceMs, counted_since_ms: countedMs }, shown) {
  const said = [];
  if (others) {
    const spent = sumText(others.spent_micros);
    said.push(`${countText(total - shown)} more agents made ${countOf(others.calls, "call")} and spent ${spent}.`);
  }
  if (countedMs !== null && countedMs > sinceMs) {
    said.push(`Counted back to ${dateText(countedMs)} so far; the rest follows.`);
  }
  return said.join(" ");
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
    className: "rates middle",
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
