/** Policy: the file that holds now, and what it means for an agent and a tool, line by line. */

import { ask } from "./api.js";
import { fieldOf } from "./dialog.js";
import { make } from "./dom.js";
import { badge, card, code, facts, note, pageHead, pathOf, refusal, said } from "./parts.js";
import { persist } from "./waiting.js";

const ABOVE_PX = 40; // what is seen of the file above the first line that is marked

export async function open(place, { query, signal }) {
  const about = make("div", { className: "stack" });
  const lines = make("ol", { className: "file", tabIndex: 0, ariaLabel: "The policy file" });
  const questions = new Questions(query, lines, signal);
  const meaning = note("Which entry is an agent’s; whether it may use a tool; at what price, budget and rate.");
  const cards = [card("The file", about, lines), card("What it means", meaning, questions.form, questions.told)];
  place.append(pageHead("Policy"), make("div", { className: "columns-2" }, ...cards));
  const policy = await persist(() => ask("policy", {}, signal), signal);
  about.replaceChildren(...aboutFile(policy));
  lines.hidden = policy.text === null;
  const rows = (policy.text ?? "").replace(/\n$/, "").split("\n");
  lines.replaceChildren(
    ...rows.map((row, at) => make("li", { dataset: { line: String(at + 1) } }, make("code", {}, row || " "))),
  );
  if (questions.isAsked) await questions.ask();
}

/** Several gateways have their policy pushed to them. */
function withoutFile(text) {
  return text === null ? "none: the default policy holds" : "none: it was pushed to all gateways";
}

/** The file may be another than the policy that holds, broken, or not to be shown. */
function aboutFile({ revision, path, text, file_revision: fileRevision, flaw }) {
  const isOther = fileRevision !== null && fileRevision !== revision;
  const known = facts(
    ["Holds now", code(revision)],
    ["File", path === null ? withoutFile(text) : code(path)],
    ["In the file", isOther ? code(fileRevision) : null],
  );
  if (flaw !== null) {
    const where = flaw.line === null ? "" : `Line ${flaw.line}: `;
    const broken = make("strong", {}, "The file cannot be loaded; the policy from before holds.");
    return [
      known,
      make(
        "div",
        { className: "refusal", role: "alert" },
        make("p", {}, broken),
        make("p", {}, where, said(flaw.message)),
      ),
    ];
  }
  if (isOther) return [known, note("The file has just changed: the gateway takes it within seconds.")];
  if (path !== null && text === null) return [
    known,
    note("A secret of an upstream is elsewhere in it too: its text is not shown."),
  ];
  return [known];
}

/** An agent and a tool, and what the policy says of them; the lines that say so are marked in `file`. */
class Questions {
  #agent;
  #tool;
  #file;
  #signal;
  told = make("div", { className: "told", attributes: { "aria-live": "polite" } });

  constructor(query, file, signal) {
    [this.#file, this.#signal] = [file, signal];
    const field = (name, placeholder) => make("input", {
      type: "text",
      name,
      value: query.get(name) ?? "",
      placeholder,
      required: true,
      autocomplete: "off",
      spellcheck: false,
    });
    [this.#agent, this.#tool] = [field("agent", "agent_…"), field("tool", "sysecho.….echo.invoke")];
    this.#agent.dataset.search = "";
    const submit = make("button", { type: "submit", className: "primary" }, "Explain");
    this.form = make(
      "form",
      { className: "explain" },
      fieldOf("Agent", this.#agent),
      fieldOf("Tool", this.#tool),
      submit,
    );
    this.form.onsubmit = (event) => {
      event.preventDefault();
      this.ask();
    };
  }

  get isAsked() {
    return this.#agent.value !== "" && this.#tool.value !== "";
  }

  async ask() {
    const body = { agent: this.#agent.value.trim(), tool: this.#tool.value.trim() };
    history.replaceState(null, "", pathOf("policy", body));
    try {
      const answer = await ask("policy/explain", body, this.#signal);
      this.told.replaceChildren(...explanation(answer));
      mark(this.#file, answer.statements.map(({ line }) => line));
    } catch (error) {
      if (error.name === "AbortError") return;
      this.told.replaceChildren(refusal(error));
      mark(this.#file, []);
    }
  }
}

function explanation({ allowed, revision, statements }) {
  const items = statements.map(({ about, words, line }) => {
    const where = make("span", { className: "where" }, line === null ? "default" : `line ${line}`);
    return make("li", {}, where, make("strong", {}, about), " ", said(words));
  });
  const why = note(`by revision ${revision}; scope and tenant of the token are asked before`);
  return [
    make("div", { className: "outcome" }, badge(allowed ? "allowed" : "denied"), why),
    make("ol", { className: "statements" }, ...items),
  ];
}

/** The lines of the file that say so; the first of them is brought into sight. */
function mark(list, numbers) {
  const wanted = new Set(numbers.filter((one) => one !== null).map(String));
  for (const item of list.children) item.classList.toggle("marked", wanted.has(item.dataset.line));
  const first = list.querySelector(".marked");
  if (first !== null) list.scrollTop = first.offsetTop - list.offsetTop - ABOVE_PX;
}
