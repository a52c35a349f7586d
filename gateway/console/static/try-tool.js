/** One tool of a node, to be tried: its form, the answer, how long it took, what it cost, and the line in the audit. */

import { ask } from "./api.js";
import { fieldsOf } from "./audit-table.js";
import { make } from "./dom.js";
import { moneyText, shortId } from "./formats.js";
import { agentPath, badge, code, lacking, note, pathOf, refusal } from "./parts.js";
import { SchemaForm } from "./schema-form.js";
import { session } from "./session.js";

const SCOPE = "tokens:mint";

export class TryTool {
  #nodeId;
  #tool;
  #signal;
  #form;
  #isCalling = false;
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
    this.#submit.disabled = !session.may(SCOPE);
    this.show("live");
  }

  show(state) {
    this.#away.hidden = state === "live";
  }

  focus() {
    this.element.querySelector("input:not(:disabled), select, textarea, button")?.focus();
  }

  async #call() {
    const read = this.#isCalling ? null : this.#form.read();
    if (read === null) return;
    this.#isCalling = true;
    this.#answer.replaceChildren(note("Calling …"));
    try {
      const body = { node_id: this.#nodeId, tool: this.#tool.name, arguments: read.value };
      this.#answer.replaceChildren(...shown(await ask("try", body, this.#signal)));
    } catch (error) {
      if (error.name !== "AbortError") {
        this.#answer.replaceChildren(error.scope ? lacking(error.scope, "Trying a tool") : refusal(error));
      }
    } finally {
      this.#isCalling = false;
    }
  }
}

/** What became of it: `answer` or `error` is there. */
function shown({ answer, error, took_ms: tookMs, price_micros: price, correlation_id: correlationId, audit }) {
  const summary = make(
    "p",
    { className: "outcome" },
    badge(error ? "refused" : "answered"),
    make("span", { className: "number" }, `${Math.round(tookMs * 10) / 10} ms`),
    make("span", { className: "number" }, price === null ? "free" : moneyText(price)),
    correlationId ? code(correlationId) : "",
  );
  const said = error
    ? refusal({ message: error.message, fix: error.suggested_fix, code: error.code })
    : make("pre", { tabIndex: 0, role: "region", ariaLabel: "Answer" }, JSON.stringify(answer, null, 2));
  return [summary, said, auditLine(audit)];
}

function auditLine(line) {
  const summary = make("summary", {}, "The line it left in the audit");
  const more = make("a", { href: pathOf("log", { agent: line.sub }) }, "All lines of this agent");
  return make("details", { className: "audit-line", open: true }, summary, fieldsOf(line), more);
}
