/** Engine: the processes of a gateway that is several, what each owns, and how far behind it is. */

import { ask } from "./api.js";
import { make } from "./dom.js";
import { dateText, shortId } from "./formats.js";
import { badge, card, code, emptyNote, facts, note, pageHead, said } from "./parts.js";
import { repeat } from "./waiting.js";

const LOOK_MS = 5_000;

export async function open(place, { signal }) {
  const body = make("div", { className: "stack" });
  place.append(pageHead("Engine"), body);
  await repeat(async () => {
    const { engine } = await ask("engine", {}, signal);
    const next = engine === null ? [emptyNote("This gateway is one process: there is no engine.")] : parts(engine);
    const drawn = make("div", {}, ...next);
    if (body.textContent !== drawn.textContent) body.replaceChildren(...drawn.childNodes);
  }, LOOK_MS, signal);
}

/** Lists are tables, the rest are facts. */
function parts(engine) {
  const lists = Object.entries(engine).filter(([, value]) => Array.isArray(value));
  const rest = Object.entries(engine).filter(([, value]) => !Array.isArray(value));
  const about = rest.length === 0
    ? []
    : [card("About", facts(...rest.map(([name, value]) => [wordsOf(name), code(textOf(value, name))])))];
  return [...about, ...lists.map(([name, rows]) => card(wordsOf(name), tableOf(name, rows)))];
}

function tableOf(name, rows) {
  const objects = rows.map((row) => (typeof row === "object" && row !== null ? row : { value: row }));
  if (objects.length === 0) return note("None.");
  const names = new Set(objects.flatMap(Object.keys));
  const columns = [...FIRST.filter((name) => names.has(name)), ...[...names].filter((name) => !FIRST.includes(name))];
  const headings = columns.map(
    (column) => make("th", { scope: "col", className: classOf(objects, column) }, wordsOf(column)),
  );
  const head = make("tr", {}, ...headings);
  const lines = objects.map(
    (row) => make(
      "tr",
      {},
      ...columns.map(
        (column) => make(
          "td",
          { className: classOf(objects, column) },
          WORDS.has(column) && typeof row[column] === "string"
            ? badge(row[column])
            : said(textOf(row[column], column)),
        ),
      ),
    ),
  );
  const table = make(
    "table",
    {},
    make("caption", { className: "hidden" }, wordsOf(name)),
    make("thead", {}, head),
    make("tbody", {}, ...lines),
  );
  return make(
    "div",
    { className: "scroll", tabIndex: 0, role: "region", ariaLabel: `Table of ${wordsOf(name)}` },
    table,
  );
}

/** What an operator looks for; what else a process says follows. */
const FIRST = [
  "process", "standing", "link", "nodes", "ledgers", "lag_ms", "heartbeat_age_ms", "queued_appends",
  "unknown_outcomes", "skew_ms", "host", "started_at_ms", "is_here",
];
const WORDS = new Set(["standing", "link"]); // how a process is

function classOf(rows, column) {
  if (column.endsWith("_at_ms")) return "when";
  return rows.some((row) => typeof row[column] === "number") ? "number" : "unbroken";
}

const wordsOf = (name) => {
  const words = name.replace(/^is_|_at_ms$/, "").replace(/_ms$/, " (ms)").replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
};

function textOf(value, name) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number" && name.endsWith("_at_ms")) return dateText(value);
  if (name === "process") return shortId(String(value));
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
