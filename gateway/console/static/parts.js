/** What several pages are put together from. Whatever somebody wrote is in a `bdi`: it turns no text around it. */

import { make } from "./dom.js";
import { countText, shortId, shortTool } from "./formats.js";
import { session } from "./session.js";

/** A page's heading, which has the focus when the page comes up, and its controls. */
export function pageHead(title, ...controls) {
  const heading = make("h1", { tabIndex: -1 }, typeof title === "string" ? make("bdi", {}, title) : title);
  return make("div", { className: "head" }, heading, ...controls);
}

export function card(title, ...children) {
  const id = `card-${(cards += 1)}`;
  return make(
    "section",
    { className: "card", attributes: { "aria-labelledby": id } },
    make("h2", { id }, title),
    ...children,
  );
}
let cards = 0;

export const said = (text) => make("bdi", {}, text);
export const code = (text) => make("code", { dir: "auto" }, text);
export const note = (...children) => make("p", { className: "note" }, ...children);

/** In the place of a table that has no rows: why, and what to do about it. */
export const emptyNote = (...children) => make("p", { className: "note empty" }, ...children);

/** Any value, as it is in JSON; text without quotes. */
export const valueOf = (value) => code(typeof value === "string" ? value : JSON.stringify(value));

/** A number in large, with its word. */
export const tile = (number, word, ...more) => make(
  "div",
  { className: "tile" },
  make("span", { className: "number" }, number),
  make("span", { className: "word" }, word),
  ...more,
);

/** The text, if it is another. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** What `draw` makes, if `key` is another than before: what the person selects, or has the focus on, stays. */
export function replaceIfOther(element, key, draw) {
  if (element.dataset.key === key) return;
  element.dataset.key = key;
  element.replaceChildren(...draw());
}

/** To another page of the console. */
export const goTo = (address) => document.dispatchEvent(new CustomEvent("console:go", { detail: address }));

/** A word and its colour: `live`, `away`, `refused`, … */
export const badge = (word) => make("span", { className: "badge", dataset: { word } }, word);

export const nodePath = (nodeId) => `/console/node/${encodeURIComponent(nodeId)}`;
export const agentPath = (sub) => `/console/agent/${encodeURIComponent(sub)}`;

/** A page with what it shows, as an address. */
export function pathOf(page, query = {}) {
  const fields = new URLSearchParams(
    Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== ""),
  );
  return `/console/${page}${fields.size > 0 ? `?${fields}` : ""}`;
}

export const nodeLink = (nodeId, name) =>
  make("a", { href: nodePath(nodeId), title: nodeId }, said(name ?? shortId(nodeId)));

export const agentLink = (sub) => make(
  "a",
  { href: agentPath(sub), title: sub },
  make("code", { className: "short" }, shortId(sub)),
);

/** The whole name of a tool; a line ends behind one of its dots. */
export const toolPath = (tool) => make("code", {}, ...tool.split(/(?<=\.)/).flatMap((part) => [part, make("wbr")]));

/** A tool's name without the middle of its node's id. */
export const toolName = (tool) => make("code", { className: "short", title: tool }, shortTool(tool));

/** Some of a whole, as a bar with its numbers; `text` says them. */
export function meter(value, max, text, label) {
  const share = max > 0 ? Math.min(1, Math.max(0, value / max)) : 0;
  const fill = make("span", { className: "fill" });
  fill.style.width = `${(share * 100).toFixed(1)}%`;
  const level = share >= 0.9 ? "high" : share >= 0.7 ? "raised" : "normal";
  const attributes = {
    role: "meter",
    "aria-label": label,
    "aria-valuemin": "0",
    "aria-valuemax": String(max),
    "aria-valuenow": String(Math.min(value, max)),
    "aria-valuetext": text,
  };
  const bar = make("span", { className: "meter", dataset: { level }, attributes }, fill);
  return make("div", { className: "metered" }, bar, make("span", { className: "number", ariaHidden: "true" }, text));
}

/** Names with numbers, the largest first, as bars. `entries`: `[name, number, text?]`. */
export function bars(entries, emptyText, nameOf = said) {
  if (entries.length === 0) return note(emptyText);
  const max = Math.max(...entries.map(([, number]) => number), 1e-9);
  const rows = entries.map(([name, number, text = countText(number)]) => {
    const fill = make("span", { className: "fill" });
    fill.style.width = `${((number / max) * 100).toFixed(1)}%`;
    return make(
      "li",
      {},
      make("span", { className: "name" }, nameOf(name)),
      make("span", { className: "number" }, text),
      make("span", { className: "track", ariaHidden: "true" }, fill),
    );
  });
  return make("ul", { className: "bars" }, ...rows);
}

/** Facts: `[term, …what]`; those without a value are left out. */
export function facts(...entries) {
  const list = make("dl", { className: "facts" });
  for (const [term, ...values] of entries) {
    if (values.every((value) => value === null || value === undefined || value === "")) continue;
    list.append(make("dt", {}, term), make("dd", {}, ...values));
  }
  return list;
}

export function tagList(tags, onPick = null) {
  const items = Object.entries(tags ?? {}).map(([key, value]) => {
    const text = `${key}=${value}`;
    const chip = onPick === null
      ? said(text)
      : make(
        "button",
        { type: "button", className: "tag", title: `Show nodes with ${text}`, onclick: () => onPick(text) },
        said(text),
      );
    return make("li", {}, chip);
  });
  return items.length === 0 ? "" : make("ul", { className: "tags" }, ...items);
}

/** Where a scope is missing, that is said, and which. */
export function lacking(scope, what) {
  const have = session.operator?.scopes ?? [];
  return make(
    "div",
    { className: "lacking-scope", role: "note" },
    make("p", {}, make("strong", {}, `${what} needs the scope `), code(scope), make("strong", {}, ".")),
    note(
      have.length === 0 ? "You have no scopes." : "You have ",
      ...have.flatMap((one, at) => [at > 0 ? ", " : "", code(one)]),
      have.length === 0 ? "" : ". ",
      "Ask an operator for a link that has it.",
    ),
  );
}

/** What the gateway said no with. */
export function refusal(error) {
  const lines = [make("p", {}, make("strong", {}, error.message))];
  if (error.fix) lines.push(make("p", {}, error.fix));
  const ids = [error.code, error.correlationId && `correlation ${error.correlationId}`].filter(Boolean);
  if (ids.length > 0) lines.push(note(ids.join(" · ")));
  return make("div", { className: "refusal", role: "alert" }, ...lines);
}
