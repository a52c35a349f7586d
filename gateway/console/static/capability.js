/** A capability of a node: what it may be used for and how much, how much of that is in use, and its tools to try. */

import { make } from "./dom.js";
import { countText, shortNumber } from "./formats.js";
import { badge, code, meter, note, toolPath } from "./parts.js";
import { TryTool } from "./try-tool.js";

/** `show(capability, state)` as often as it is known anew; what is typed into its forms stays. */
export function capabilityCard(nodeId, signal) {
  const title = make("h3"), use = make("div", { className: "use" }), tools = make("ul", { className: "tools" });
  const element = make("section", { className: "card capability" }, title, use, tools);
  const known = new Map(); // tool's name → its item

  function show({ cap_id: capId, kind, safety_class: safetyClass, limits, use: used, tools: list = [] }, state) {
    if (title.dataset.key !== `${capId} ${kind} ${safetyClass}`) {
      title.dataset.key = `${capId} ${kind} ${safetyClass}`;
      title.replaceChildren(code(capId), " ", make("span", { className: "note" }, kind), " ", badge(safetyClass));
    }
    use.replaceChildren(...meters(limits, used));
    for (const tool of list) {
      if (!known.has(tool.name)) known.set(tool.name, toolItem(nodeId, tool, safetyClass, signal));
      known.get(tool.name).show(state);
    }
    const items = list.map(({ name }) => known.get(name).element);
    if (
      items.length !== tools.children.length ||
      items.some((item, at) => tools.children[at] !== item)
    ) tools.replaceChildren(...items);
    element.ariaLabel = `Capability ${capId}`;
  }
  return { element, show };
}

function meters(limits, used) {
  const found = [];
  const { max_concurrency: atOnce, rate_limit_rps: perSecond } = limits ?? {};
  if (Number.isFinite(atOnce)) {
    const now = used?.in_flight ?? 0;
    found.push(
      make(
        "div",
        {},
        make("span", { className: "note" }, "Calls at once"),
        meter(now, atOnce, `${countText(now)} of ${countText(atOnce)}`, "Calls at once"),
      ),
    );
  }
  if (Number.isFinite(perSecond)) {
    const left = used?.tokens_left ?? perSecond; // no use yet: all of it
    const spent = Math.max(0, perSecond - left);
    found.push(
      make(
        "div",
        {},
        make("span", { className: "note" }, "Calls a second"),
        meter(spent, perSecond, `${shortNumber(spent)} of ${shortNumber(perSecond)}`, "Calls a second"),
      ),
    );
  }
  return found.length > 0 ? found : [note("No limits of its own.")];
}

function toolItem(nodeId, tool, safetyClass, signal) {
  const panel = make("div", { className: "try-panel", hidden: true });
  const isStream = tool.verb === "subscribe";
  let form = null;
  const toggle = make("button", { type: "button", ariaExpanded: "false", ariaLabel: `Try it: ${tool.name}` }, "Try it");
  toggle.onclick = () => {
    if (form === null) panel.append((form = new TryTool(nodeId, tool, signal)).element);
    panel.hidden = !panel.hidden;
    toggle.ariaExpanded = String(!panel.hidden);
    if (!panel.hidden) form.focus();
  };
  const last = isStream ? make("span", { className: "note" }, "see the charts") : toggle;
  const safety = tool.safety_class === safetyClass ? "" : badge(tool.safety_class);
  const head = make("div", { className: "tool" }, make("strong", {}, tool.verb), safety, toolPath(tool.name), last);
  return { element: make("li", { dataset: { tool: tool.name } }, head, panel), show: (state) => form?.show(state) };
}
