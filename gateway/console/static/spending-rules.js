/** What an agent spent, from the histories of its ledgers. What was released or refunded is taken back. Pure. */

/** Of one ledger: each change of what is spent, as time, micro-dollars and tool. */
function* changesOf({ history = [] }) {
  const reserved = new Map(history.filter(({ event }) => event === "reserved").map((one) => [one.id, one]));
  for (const { at, event, id, micros } of history) {
    const { micros: amount = 0, tool } = reserved.get(id) ?? {};
    if (event === "reserved") yield [Date.parse(at), micros, tool];
    else if (event === "released") yield [Date.parse(at), -amount, tool];
    else if (event === "refunded") yield [Date.parse(at), -micros, tool];
  }
}

/** What it had spent at each time: points of a chart. */
export function spending(ledgers, nowMs) {
  const changes = ledgers.flatMap((ledger) => [...changesOf(ledger)]).sort(([one], [other]) => one - other);
  const known = changes.reduce((sum, [, micros]) => sum + micros, 0);
  const all = ledgers.reduce((sum, { used_micros: used = 0 }) => sum + used, 0);
  if (changes.length === 0) return [];
  let spent = Math.max(0, all - known); // older ones are only in the sum
  const points = [{ at: changes[0][0] - 1, values: [spent] }];
  for (const [at, micros] of changes) points.push({ at, values: [(spent += micros)] });
  return [...points, { at: Math.max(nowMs, changes.at(-1)[0] + 1), values: [spent] }];
}

/** On what: tools and sums, the largest first. */
export function byTool(ledgers) {
  const sums = new Map();
  for (const [, micros, tool] of ledgers.flatMap((ledger) => [...changesOf(ledger)])) {
    if (tool) sums.set(tool, (sums.get(tool) ?? 0) + micros);
  }
  return [...sums].sort(([, one], [, other]) => other - one);
}
