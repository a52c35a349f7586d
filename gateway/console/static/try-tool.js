/** One tool of a node, to be tried: its form, the answer, how long it took, what it cost, and the line in the audit. */

import { ask } from "./api.js";
import { make } from "./dom.js";
import { moneyText, shortId } from "./formats.js";
import { agentPath, badge, code, facts, lacking, note, pathOf, refusal } from "./parts.js";
import { SchemaForm } from "./schema-form.js";
import { session } from "./session.js";

const SCOPE = "tokens:mint";

export class TryTool {
  #nodeId;
  #tool;
  #signal;
  #form;
  #submit = make("button", { type: "submit", className: "primary" }, "Call it");
  #away = note("The node is not connected: the call will be refused.");
  #answer = make("div", { className: "answer", attributes: { "aria-live": "polite" } });

  constructor(nodeId, tool, signal) {
    [this.#nodeId, this.#tool, this.#signal] = [nodeId, tool, signal];
    this.#form = new SchemaForm(tool.input_schema ?? {});
    const form = make(
      "form",
      { noValidate: true, ariaLabel: `Arguments of ${tool.name}` },
      this.#form.element,
      make("p", { className: "row" }, this.#submit, this.#away),
    );
    form.onsubmit = (event) => {
      event.preventDefault();
      this.#call();
    };
    const { agent } = session.operator;
    const who = note(
      "The call runs as your own agent, ",
      make("a", { href: agentPath(agent) }, code(shortId(agent))),
      ", in this node’s tenant, under policy and budget, and is in the log. ",
      make("a", { href: pathOf("policy", { agent, tool: tool.name }) }, "What the policy says"),
    );
    this.element = make(
      "div",
      { className: "try" },
      session.may(SCOPE) ? who : lacking(SCOPE, "Trying a tool"),
      form,
      this.#answer,
    );
    if (!session.may(SCOPE)) this.#submit.disabled = true;
    this.show("live");
  }

  show(state) {
    this.#away.hidden = state === "live";
  }

  focus() {
    this.element.querySelector("input:not(:disabled), select, textarea, button")?.focus();
  }

  async #call() {
    const read = this.#form.read();
    if (read === null || !session.may(SCOPE)) return;
    this.#submit.disabled = true;
    this.#answer.replaceChildren(note("Calling …"));
    try {
      const body = { node_id: this.#nodeId, tool: this.#tool.name, arguments: read.value };
      this.#answer.replaceChildren(...shown(await ask("try", body, this.#signal)));
    } catch (error) {
      if (error.name !== "AbortError") {
        this.#answer.replaceChildren(error.scope ? lacking(error.scope, "Trying a tool") : refusal(error));
      }
    } finally {
      this.#submit.disabled = false;
    }
  }
}

function shown({ answer, error, took_ms: tookMs, price_micros: price, correlation_id: correlationId, audit }) {
  const isRefused = error !== undefined && error !== null;
  const summary = make(
    "p",
    { className: "outcome" },
    badge(isRefused ? "refused" : "answered"),
    make("span", { className: "number" }, `${Math.round(tookMs * 10) / 10} ms`),
    make("span", { className: "number" }, price === null || price === undefined ? "free" : moneyText(price)),
    correlationId ? code(correlationId) : "",
  );
  const said = isRefused
    ? make(
      "div",
      { className: "refusal" },
      make("p", {}, make("strong", {}, error.message ?? "It was refused.")),
      error.suggested_fix ? make("p", {}, error.suggested_fix) : "",
      note(error.code ?? ""),
    )
    : make("pre", { tabIndex: 0, role: "region", ariaLabel: "Answer" }, JSON.stringify(answer, null, 2));
  return [summary, said, audit ? auditLine(audit) : ""];
}

function auditLine(line) {
  const entries = Object.entries(line).filter(([, value]) => value !== null);
  const list = facts(
    ...entries.map(([name, value]) => [name, code(typeof value === "string" ? value : JSON.stringify(value))]),
  );
  const more = line.sub ? make("a", { href: pathOf("log", { agent: line.sub }) }, "All lines of this agent") : "";
  return make(
    "details",
    { className: "audit-line", open: true },
    make("summary", {}, "The line it left in the audit"),
    list,
    more,
  );
}
