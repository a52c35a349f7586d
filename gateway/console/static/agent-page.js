/** One agent: its budget and rates, what it spent over time and on what, what was refused, and its last lines. */

import { ask } from "./api.js";
import { budgetMeter } from "./agents-page.js";
import { auditTable } from "./audit-table.js";
import { now } from "./clock.js";
import { make } from "./dom.js";
import { countOf, countText, dateText, moneyText, spanText, sumText } from "./formats.js";
import { LineChart } from "./line-chart.js";
import { bars, card, facts, lacking, meter, note, pageHead, pathOf, said, toolName } from "./parts.js";
import { session } from "./session.js";
import { byTool, spending } from "./spending-rules.js";
import { repeat } from "./waiting.js";

const LOOK_MS = 15_000;
const LINES_MAX = 100;
const TOOLS_MAX = 10;

export async function open(place, { argument: sub, signal, title }) {
  title(sub);
  const links = make(
    "div",
    { className: "actions" },
    make("a", { className: "button", href: pathOf("log", { agent: sub }) }, "In the log"),
    make("a", { className: "button", href: pathOf("policy", { agent: sub }) }, "Its policy"),
  );
  const chart = new LineChart({
    title: "Spent in all",
    series: ["spent"],
    format: (micros) => sumText(Math.round(micros)),
    isStepped: true,
  });
  const money = make("div", { className: "stack" }), refused = make("div"), tools = make("div");
  const lines = auditTable({ caption: "Its last calls", without: "Who" });
  const last = make("div", {}, lines.element);
  const noSpend = note("It has spent nothing yet.");
  place.append(
    pageHead(sub, links),
    make("div", { className: "columns-2" }, card("Spending", chart.element, noSpend), card("Budget and rates", money)),
    make("div", { className: "columns-2" }, card("On what", tools), card("Refused because", refused)),
    card("Last calls", last),
  );
  let isFirst = true;
  await repeat(async () => {
    const answer = await ask("agent", { sub }, signal);
    const { ledgers } = answer;
    const points = spending(ledgers, now());
    chart.set(points);
    [chart.element.hidden, noSpend.hidden] = [points.length === 0, points.length > 0];
    money.replaceChildren(...budgets(ledgers));
    const paid = byTool(ledgers).slice(0, TOOLS_MAX).map(([tool, micros]) => [tool, micros, moneyText(micros)]);
    tools.replaceChildren(bars(paid, "Nothing was paid for.", toolName));
    if (answer.lines === null) {
      const why = () => (
        session.may("fleet:read") ? note("This gateway keeps no audit.") : lacking("fleet:read", "What it called")
      );
      refused.replaceChildren(why());
      last.replaceChildren(why());
      return;
    }
    refused.replaceChildren(bars(byReason(answer.lines), "None of its last calls was refused.", said));
    if (isFirst) lines.show(answer.lines);
    else lines.add(answer.lines.toReversed(), LINES_MAX);
    isFirst = false;
  }, LOOK_MS, signal);
}

function byReason(lines) {
  const counts = new Map();
  for (const { decision, reason } of lines) {
    if (decision === "refused" && reason) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  }
  return [...counts].sort(([, one], [, other]) => other - one);
}

function budgets(ledgers) {
  const parts = ledgers.map(({ tenant, used_micros: used, reserved_micros: reserved, budget }) =>
    make(
      "div",
      { className: "stack" },
      budgetMeter(budget),
      facts(
        ["Tenant", said(tenant)],
        ["Spent in all", sumText(used)],
        ["Reserved now", reserved > 0 ? sumText(reserved) : null],
        ["Price of a call", budget ? moneyText(budget.price_micros) : null],
        [
          "Period",
          budget?.period_s
            ? `${spanText(budget.period_s * 1000)}, until ${dateText(Date.parse(budget.resets_at))}`
            : null,
        ],
      ),
      ...(budget?.rates ?? []).map(rateMeter),
    ),
  );
  return parts.length > 0 ? parts : [note("It has no ledger yet: it has not called anything that costs.")];
}

function rateMeter({ name, cap, used, per_s: perS }) {
  const label = make(
    "span",
    { className: "note" },
    said(name),
    `: ${countOf(cap, "call")} in ${spanText(perS * 1000)}`,
  );
  return make("div", {}, label, meter(used, cap, `${countText(used)} of ${countText(cap)}`, `Rate ${name}`));
}
