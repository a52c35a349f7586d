/**
 * A form made from a JSON Schema, with the same as JSON behind a switch; a schema that cannot be drawn is JSON alone.
 * What is typed is checked before it leaves, and problems are told at the field that has them.
 *
 * A field that is left empty is left out, unless it is required.
 */

import { make } from "./dom.js";
import { canonical, problemsOf } from "./schema-check.js";
import { controlOf, OMIT } from "./schema-controls.js";
import { fieldOf } from "./schema-rules.js";

export class SchemaForm {
  #schema;
  #field;
  #control = null; // what is drawn now
  #places = new Map(); // JSON pointer → where a problem is said
  #place = make("div", { className: "schema-form" });
  #problems = make("div", { className: "problems", role: "alert" });
  #isJson;

  constructor(schema) {
    this.#schema = schema;
    this.#field = fieldOf(schema);
    this.#isJson = this.#field.kind !== "object";
    this.element = make("div", { className: "schema" }, this.#place, this.#problems);
    if (this.#isJson) {
      const why = this.#field.why ?? "it is no object";
      this.element.prepend(
        make("p", { className: "note" }, `No form can be drawn: ${why}. Write the arguments as JSON.`),
      );
    } else {
      const onclick = ({ currentTarget }) => this.#change(currentTarget);
      this.element.append(make("button", { type: "button", className: "plain", onclick }, "Write it as JSON"));
    }
    this.#draw(undefined);
  }

  /** `{ value }`, or null where something does not fit: then it is said, and the first such field has the focus. */
  read() {
    this.#clear();
    const { value, wrong } = this.#typed();
    const told = new Set(wrong.map(({ path }) => path));
    const problems = [...wrong, ...problemsOf(value, this.#schema).filter(({ path }) => !told.has(path))];
    if (problems.length === 0) return { value };
    this.#show(problems);
    return null;
  }

  #typed() {
    const wrong = [];
    const value = this.#control.read((path, words) => wrong.push({ path, words }));
    return { value: value === OMIT ? {} : value, wrong };
  }

  #draw(value) {
    this.#places.clear();
    const at = { path: "", isRequired: true, places: this.#places, root: this.#schema };
    this.#control = this.#isJson
      ? controlOf({ kind: "json" }, { ...at, label: "Arguments as JSON" })
      : controlOf(this.#field, { ...at, label: null });
    this.#place.replaceChildren(this.#control.element);
    if (value !== undefined) this.#control.write(value);
  }

  /** To the other form, with what is there already; not if the form would lose some of it. */
  #change(button) {
    this.#clear();
    const { value, wrong } = this.#typed();
    if (this.#isJson && wrong.length > 0) {
      this.#show(wrong);
      return;
    }
    this.#isJson = !this.#isJson;
    this.#draw(value);
    if (!this.#isJson && canonical(this.#typed().value) !== canonical(value)) {
      this.#isJson = true;
      this.#draw(value);
      this.#problems.replaceChildren(make("p", {}, "The form cannot show all of this."));
    }
    button.textContent = this.#isJson ? "Fill in the form" : "Write it as JSON";
  }

  // ---- problems -----------------------------------------------------------------------------------------------------

  #clear() {
    this.#problems.replaceChildren();
    for (const { input, problem } of this.#places.values()) {
      input?.removeAttribute("aria-invalid");
      problem.textContent = "";
    }
  }

  #show(problems) {
    let first = null;
    const elsewhere = [];
    for (const { path, words } of problems) {
      const place = this.#placeOf(path);
      if (place === null) {
        elsewhere.push(`${path || "The value"} ${words}.`);
        continue;
      }
      place.input?.setAttribute("aria-invalid", "true");
      const inner = place.path === path ? "" : `${path.slice(place.path.length)} `;
      place.problem.append(`${place.problem.textContent ? " " : ""}${inner}${words}.`);
      first ??= place.input;
    }
    const count = problems.length;
    const told = [`${count === 1 ? "One thing does" : `${count} things do`} not fit.`, ...elsewhere];
    this.#problems.replaceChildren(...told.map((text) => make("p", {}, text)));
    first?.focus();
  }

  /** Where that part of the value is shown, or what it lies in. */
  #placeOf(path) {
    for (let at = path; ; at = at.slice(0, at.lastIndexOf("/"))) {
      const place = this.#places.get(at);
      if (place !== undefined) return place;
      if (!at.includes("/")) return null;
    }
  }
}
