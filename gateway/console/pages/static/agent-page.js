/** One agent: its budget and rates, what it spent over time and on what, what was refused, and its last lines. */

import { ask } from "./api.js";
import { budgetMeter } from "./agents-page.js";
import { auditTable } from "./audit-table.js";
import { make } from "./dom.js";
import { countOf, countText, moneyText, spanText, sumText } from "./formats.js";
import { LineChart } from "./line-chart.js";
import { bars, card, facts, meter, note, pageHead, pathOf, said, toolName } from "./parts.js";
import { repeat } from "./waiting.js";

const LOOK_MS = 15_000;

export async function open(place, { argument: sub, signal, title }) {
  title(sub);
  const links = make("div", { className: "actions" }, make("a", { className: "button", href: pathOf("log", { agent: sub }) }, "In the log"), make("a", { className: "button", href: pathOf("policy", { agent: sub }) }, "Its policy"));
  const chart = new LineChart({ title: "Spent in all", series: ["spent"], format: (micros) => sumText(Math.round(micros)), isStepped: true });
  const money = make("div", { className: "stack" }), refused = make("div"), tools = make("div");
  const lines = auditTable({ caption: "Its last calls" });
  const noSpend = note("It has spent nothing yet.");
  place.append(
    pageHead(sub, links),
    make("div", { className: "columns-2" }, card("Spending", chart.element, noSpend), card("Budget and rates", money)),
    make("div", { className: "columns-2" }, card("On what", tools), card("Refused because", refused)),
    card("Last calls", lines.element),
  );
  let isFirst = true;
  await repeat(async () => {
    const answer = await ask("agent", { sub }, signal);
    const ledgers = answer.ledgers ?? [];
    const points = spending(ledgers);
    chart.set(points);
    [chart.element.hidden, noSpend.hidden] = [points.length === 0, points.length > 0];
    money.replaceChildren(...budgets(answer, ledgers));
    tools.replaceChildren(bars(byTool(ledgers), "Nothing was paid for.", toolName));
    refused.replaceChildren(bars(byReason(answer.lines ?? []), "None of its last calls was refused.", said));
    if (isFirst) lines.show(answer.lines ?? []);
    else lines.add([...(answer.lines ?? [])].reverse(), 200);
    isFirst = false;
  }, LOOK_MS, signal);
}

/** What it had spent at each time, from the reservations of its ledgers; what was released is taken back. */
function spending(ledgers) {
  const changes = [];
  for (const { history = [] } of ledgers) {
    const amounts = new Map(history.filter((one) => one.micros !== undefined).map((one) => [one.id, one.micros]));
    for (const { at, event, id, micros } of history) {
      if (event === "reserved") changes.push([Date.parse(at), micros]);
      else if (event === "released") changes.push([Date.parse(at), -(amounts.get(id) ?? 0)]);
    }
  }
  changes.sort(([one], [other]) => one - other);
  const known = changes.reduce((sum, [, micros]) => sum + micros, 0);
  const all = ledgers.reduce((sum, { used_micros: used = 0 }) => sum + used, 0);
  let spent = Math.max(0, all - known); // older ones are only in the sum
  return changes.map(([at, micros]) => ({ at, values: [(spent += micros)] }));
}

function byTool(ledgers) {
  const sums = new Map();
  for (const { history = [] } of ledgers) for (const { tool, micros } of history) if (tool) sums.set(tool, (sums.get(tool) ?? 0) + micros);
  return [...sums].sort(([, one], [, other]) => other - one).slice(0, 10).map(([tool, micros]) => [tool, micros, moneyText(micros)]);
}

function byReason(lines) {
  const counts = new Map();
  for (const { decision, reason } of lines) if (decision === "refused" && reason) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  return [...counts].sort(([, one], [, other]) => other - one);
}

function budgets({ budgets: found = [], budget = null }, ledgers) {
  const all = found.length > 0 ? found : budget ? [budget] : [];
  const parts = all.map((one) =>
    make(
      "div",
      { className: "stack" },
      budgetMeter(one),
      facts(
        ["Tenant", one.tenant ? said(one.tenant) : null],
        ["Price of a call", one.price_micros === undefined ? null : moneyText(one.price_micros)],
        ["Period", one.period_s ? `${spanText(one.period_s * 1000)}, begins anew ${new Date(one.resets_at).toLocaleString()}` : null],
      ),
      ...(one.rates ?? []).map(({ name, cap, used, per_s: perS }) => make("div", {}, make("span", { className: "note" }, said(name), `: ${countOf(cap, "call")} in ${spanText(perS * 1000)}`), meter(used, cap, `${countText(used)} of ${countText(cap)}`, `Rate ${name}`))),
    ),
  );
  for (const { tenant, used_micros: used, reserved_micros: reserved } of ledgers) {
    parts.push(facts(["Ledger of tenant", said(tenant)], ["Spent in all", sumText(used)], ["Reserved now", sumText(reserved)]));
  }
  return parts.length > 0 ? parts : [note("It has no ledger, and no budget of its own.")];
}
