/** Policy: the file that holds now, and what it means for an agent and a tool, line by line. */

import { ask } from "./api.js";
import { attempt, make } from "./dom.js";
import { badge, card, code, facts, note, pageHead, refusal, said } from "./parts.js";
import { persist } from "./waiting.js";

export async function open(place, { query, signal }) {
  const lines = make("ol", { className: "file", tabIndex: 0, ariaLabel: "The policy file" });
  const about = make("div");
  const told = make("div", { className: "told", attributes: { "aria-live": "polite" } });
  const agent = make("input", {
    type: "text",
    name: "agent",
    required: true,
    value: query.get("agent") ?? "",
    placeholder: "agent_…",
    autocomplete: "off",
    spellcheck: false,
    id: "explain-agent",
    dataset: { search: "" },
  });
  const tool = make("input", {
    type: "text",
    name: "tool",
    required: true,
    value: query.get("tool") ?? "",
    placeholder: "sysecho.….echo.invoke",
    autocomplete: "off",
    spellcheck: false,
    id: "explain-tool",
  });
  const form = make(
    "form",
    { className: "explain" },
    make("div", { className: "field" }, make("label", { htmlFor: agent.id }, "Agent"), agent),
    make("div", { className: "field" }, make("label", { htmlFor: tool.id }, "Tool"), tool),
    make("button", { type: "submit", className: "primary" }, "Explain"),
  );
  form.onsubmit = (event) => {
    event.preventDefault();
    attempt(() => explain());
  };
  async function explain() {
    const body = { agent: agent.value.trim(), tool: tool.value.trim() };
    history.replaceState(null, "", `/console/policy?${new URLSearchParams(body)}`);
    try {
      const answer = await ask("policy/explain", body, signal);
      told.replaceChildren(...explanation(answer));
      mark(lines, answer.statements.map(({ line }) => line));
    } catch (error) {
      mark(lines, []);
      told.replaceChildren(refusal(error));
    }
  }
  place.append(
    pageHead("Policy"),
    make(
      "div",
      { className: "columns-2" },
      card("The file", about, lines),
      card(
        "What it means",
        note(
          "Which entry is an agent’s, whether it may use a tool, at what price, budget and rate. Nothing is called.",
        ),
        form,
        told,
      ),
    ),
  );
  const { revision, path, text, file_revision: fileRevision, flaw } = await persist(
    () => ask("policy", {}, signal),
    signal,
  );
  const isOther = fileRevision !== null && fileRevision !== revision;
  about.replaceChildren(
    facts(
      ["Holds now", code(revision)],
      ["File", path ? code(path) : "none: the default policy holds"],
      ["In the file", isOther ? code(fileRevision) : null],
    ),
    flaw === null
      ? ""
      : make(
        "div",
        { className: "refusal", role: "alert" },
        make("p", {}, make("strong", {}, "The file cannot be loaded; the policy from before holds.")),
        make("p", {}, flaw.line === null ? "" : `Line ${flaw.line}: `, said(flaw.message)),
      ),
    isOther && flaw === null ? note("The file has just changed: the gateway takes it within seconds.") : "",
  );
  const rows = (text ?? "").replace(/\n$/, "").split("\n");
  lines.replaceChildren(
    ...rows.map((row, at) => make("li", { dataset: { line: String(at + 1) } }, make("code", {}, row || " "))),
  );
  lines.hidden = !text;
  if (agent.value && tool.value) await explain();
}

function explanation({ allowed, revision, statements }) {
  const items = statements.map(({ about, words, line }) =>
    make(
      "li",
      {},
      make("span", { className: "where" }, line === null ? "default" : `line ${line}`),
      make("strong", {}, about),
      " ",
      said(words),
    ),
  );
  return [
    make(
      "p",
      { className: "outcome" },
      badge(allowed ? "allowed" : "denied"),
      note(`by revision ${revision}; scope and tenant of the token are asked before`),
    ),
    make("ol", { className: "statements" }, ...items),
  ];
}

/** The lines of the file that say so; the first of them is brought into sight. */
function mark(list, numbers) {
  const wanted = new Set(numbers.filter((one) => one !== null).map(String));
  for (const item of list.children) item.classList.toggle("marked", wanted.has(item.dataset.line));
  const first = list.querySelector(".marked");
  if (first !== null) list.scrollTop = first.offsetTop - list.offsetTop - 40;
}
