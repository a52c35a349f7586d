/**
 * A form made from a JSON Schema, with the same as JSON behind a switch; a schema that cannot be drawn is JSON alone.
 * What is typed is checked before it leaves, and problems are told at the field that has them.
 *
 * A field that is left empty is left out, unless it is required.
 */

import { make } from "./dom.js";
import { canonical, problemsOf } from "./schema-check.js";
import { fieldOf } from "./schema-rules.js";

const OMIT = Symbol("left out");
const JSON_CHARS_MAX = 60_000; // of arguments; the gateway takes bodies of 64 KiB

let names = 0;

export class SchemaForm {
  #schema;
  #field;
  #root = null; // what is drawn now: { element, read(), write(value) }
  #byPath = new Map(); // JSON pointer → the place for a problem
  #place = make("div", { className: "schema-form" });
  #problems = make("div", { className: "problems", role: "alert" });
  #isJson;

  constructor(schema) {
    this.#schema = schema;
    this.#field = fieldOf(schema);
    this.#isJson = this.#field.kind === "json" || this.#field.kind !== "object";
    const canDraw = !this.#isJson;
    const change = make(
      "button",
      { type: "button", className: "plain", onclick: () => this.#change(change) },
      "Write it as JSON",
    );
    this.element = make("div", { className: "schema" }, this.#place, this.#problems);
    if (canDraw) this.element.append(change);
    else {
      this.element.prepend(
        make(
          "p",
          { className: "note" },
          `No form can be drawn from this schema: ${this.#field.why ?? "it is no object"}. Write it as JSON.`,
        ),
      );
    }
    this.#draw();
  }

  /** `{ value }`, or null where something does not fit: then it is said, and the first such field has the focus. */
  read() {
    this.#clear();
    const wrong = [];
    const value = this.#root.read((path, words) => wrong.push({ path, words }));
    if (wrong.length === 0) wrong.push(...problemsOf(value === OMIT ? {} : value, this.#schema));
    if (wrong.length === 0) return { value: value === OMIT ? {} : value };
    this.#show(wrong);
    return null;
  }

  #draw(value = undefined) {
    this.#byPath.clear();
    this.#root = this.#isJson
      ? this.#editor("", this.#schema, "Arguments as JSON", true)
      : this.#object("", this.#field, null, true);
    this.#place.replaceChildren(this.#root.element);
    if (value !== undefined) this.#root.write(value);
  }

  /** To the other form, with what is there already; not if the form would lose some of it. */
  #change(button) {
    this.#clear();
    const wrong = [];
    const value = this.#root.read((path, words) => wrong.push({ path, words }));
    const kept = value === OMIT ? {} : value;
    if (this.#isJson && wrong.length > 0) {
      this.#show(wrong);
      return;
    }
    this.#isJson = !this.#isJson;
    this.#draw(kept);
    if (!this.#isJson && canonical(this.#readQuietly()) !== canonical(kept)) {
      this.#isJson = true;
      this.#draw(kept);
      this.#problems.replaceChildren(make("p", {}, "The form cannot show all of this."));
    }
    button.textContent = this.#isJson ? "Fill in the form" : "Write it as JSON";
  }

  #readQuietly() {
    const value = this.#root.read(() => undefined);
    return value === OMIT ? {} : value;
  }

  // ---- problems -----------------------------------------------------------------------------------------------------

  #clear() {
    this.#problems.replaceChildren();
    for (const { input, problem } of this.#byPath.values()) {
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
      const place = this.#byPath.get(at);
      if (place !== undefined) return place;
      if (!at.includes("/")) return null;
    }
  }

  // ---- fields -------------------------------------------------------------------------------------------------------

  #part(path, field, label, isRequired) {
    switch (field.kind) {
      case "object":
        return this.#object(path, field, label, isRequired);
      case "text":
        return this.#text(path, field, label, isRequired);
      case "number":
        return this.#number(path, field, label, isRequired);
      case "flag":
        return this.#flag(path, field, label, isRequired);
      case "choice":
        return this.#choice(path, field, label, isRequired);
      case "several":
        return this.#several(path, field, label, isRequired);
      case "list":
        return this.#list(path, field, label, isRequired);
      case "fixed":
        return this.#fixed(field, label, isRequired);
      default:
        return this.#editor(path, field.schema, label, isRequired, field);
    }
  }

  #object(path, field, label, isRequired) {
    const parts = field.fields.map(({ name, isRequired, field: inner }) => {
      const pointer = `${path}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`;
      return { name, isRequired, ...this.#part(pointer, inner, inner.title ?? name, isRequired) };
    });
    const body = parts.length === 0
      ? [make("p", { className: "note" }, "It takes no arguments.")]
      : parts.map(({ element }) => element);
    const element = label === null
      ? make("div", { className: "fields" }, ...body)
      : make("fieldset", { className: "fields" }, make("legend", {}, label), ...described(field), ...body);
    return {
      element,
      read(tell) {
        const entries = parts.map(({ name, read }) => [name, read(tell)]).filter(([, value]) => value !== OMIT);
        return entries.length === 0 && !isRequired ? OMIT : Object.fromEntries(entries);
      },
      write(value) {
        for (const { name, write } of parts) write(value?.[name]);
      },
    };
  }

  /** A label, the control, what it is for, and a place for what is wrong with it. */
  #labelled(path, field, label, isRequired, input, limits) {
    const id = `field-${(names += 1)}`;
    input.id = id;
    const problem = make("p", { className: "problem", id: `${id}-problem` });
    const about = [
      field.description,
      limits,
      field.default === undefined ? null : `Default: ${JSON.stringify(field.default)}.`,
    ].filter(Boolean).join(" ");
    const hint = make("p", { className: "note", id: `${id}-about` }, about);
    input.setAttribute("aria-describedby", `${about ? hint.id : ""} ${problem.id}`.trim());
    if (isRequired) input.setAttribute("aria-required", "true");
    this.#byPath.set(path, { path, input, problem });
    const caption = make(
      "label",
      { htmlFor: id },
      label,
      isRequired ? make("span", { className: "required", title: "required" }, " *") : "",
    );
    return make("div", { className: "field" }, caption, input, about ? hint : "", problem);
  }

  #text(path, field, label, isRequired) {
    const input = field.isLong
      ? make("textarea", { rows: 3, spellcheck: false })
      : make("input", { type: "text", autocomplete: "off", spellcheck: false });
    const limits = field.charsMax === null ? "" : `At most ${field.charsMax} characters.`;
    const nothing = nullBox(field, input);
    const element = this.#labelled(path, field, label, isRequired, input, limits);
    if (nothing) element.append(nothing.element);
    return {
      element,
      read: () => (nothing?.isNull() ? null : input.value === "" && !isRequired ? OMIT : input.value),
      write: (value) => {
        nothing?.set(value === null);
        input.value = value ?? "";
      },
    };
  }

  #number(path, field, label, isRequired) {
    const input = make("input", { type: "number", step: field.isWhole ? "1" : "any" });
    if (field.min !== null) input.min = field.min;
    if (field.max !== null) input.max = field.max;
    const nothing = nullBox(field, input);
    const element = this.#labelled(path, field, label, isRequired, input, boundsText(field));
    if (nothing) element.append(nothing.element);
    return {
      element,
      read: (tell) => {
        if (nothing?.isNull()) return null;
        if (input.validity.badInput) tell(path, "is not a number");
        if (input.value === "" || input.validity.badInput) return OMIT;
        return Number(input.value);
      },
      write: (value) => {
        nothing?.set(value === null);
        input.value = value ?? "";
      },
    };
  }

  #flag(path, field, label, isRequired) {
    return this.#choice(
      path,
      { ...field, options: [true, false] },
      label,
      isRequired,
      (value) => (value ? "yes" : "no"),
    );
  }

  #choice(path, field, label, isRequired, textOf = (value) => String(value)) {
    const options = [...field.options, ...(field.isNullable ? [null] : [])];
    const empty = make("option", { value: "" }, isRequired ? "Choose" : "Leave it out");
    const select = make(
      "select",
      {},
      empty,
      ...options.map((value, at) => make("option", { value: String(at) }, value === null ? "null" : textOf(value))),
    );
    const element = this.#labelled(path, field, label, isRequired, select, "");
    return {
      element,
      read: () => (select.value === "" ? OMIT : options[Number(select.value)]),
      write: (value) => (select.value = value === undefined ? "" : String(options.indexOf(value))),
    };
  }

  #several(path, field, label, isRequired) {
    const boxes = field.options.map((value) => ({ value, box: make("input", { type: "checkbox" }) }));
    const problem = make("p", { className: "problem" });
    const choices = boxes.map(
      ({ value, box }) => make("label", { className: "check" }, box, make("bdi", {}, String(value))),
    );
    const legend = make("legend", {}, label, isRequired ? make("span", { className: "required" }, " *") : "");
    const element = make(
      "fieldset",
      { className: "several" },
      legend,
      ...described(field),
      make("div", { className: "choices" }, ...choices),
      problem,
    );
    this.#byPath.set(path, { path, input: boxes[0]?.box ?? null, problem });
    return {
      element,
      read: () => {
        const values = boxes.filter(({ box }) => box.checked).map(({ value }) => value);
        return values.length === 0 && !isRequired ? OMIT : values;
      },
      write: (value) => boxes.forEach(({ value: one, box }) => (box.checked = value?.includes(one) ?? false)),
    };
  }

  #list(path, field, label, isRequired) {
    let parts = [];
    const problem = make("p", { className: "problem" });
    const items = make("div", { className: "items" });
    /** Those behind it get other numbers, which their labels and problems go by: so all are drawn again. */
    const remove = (part) => {
      write(parts.filter((one) => one !== part).map(({ read }) => read(() => undefined)));
      add.focus();
    };
    const write = (values) => {
      parts = [];
      items.replaceChildren();
      if (Array.isArray(values)) values.forEach((value) => append(value === OMIT ? undefined : value));
    };
    const append = (value) => {
      const number = parts.length;
      const part = this.#part(`${path}/${number}`, field.item, `${label} ${number + 1}`, true);
      part.row = make(
        "div",
        { className: "item" },
        part.element,
        make(
          "button",
          { type: "button", ariaLabel: `Remove ${label} ${number + 1}`, onclick: () => remove(part) },
          "Remove",
        ),
      );
      parts.push(part);
      items.append(part.row);
      if (value !== undefined) part.write(value);
      return part;
    };
    const add = make("button", {
      type: "button",
      onclick: () => parts.length < field.countMax && append(undefined).row.querySelector(
        "input, select, textarea",
      )?.focus(),
    }, `Add to ${label}`);
    const legend = make("legend", {}, label, isRequired ? make("span", { className: "required" }, " *") : "");
    const element = make("fieldset", { className: "list-field" }, legend, ...described(field), items, add, problem);
    this.#byPath.set(path, { path, input: add, problem });
    for (let at = 0; isRequired && at < Math.min(field.countMin, 20); at += 1) append(undefined);
    return {
      element,
      read: (tell) => {
        const values = parts.map(({ read }) => read(tell));
        if (values.some((value) => value === OMIT)) tell(path, "has an empty item");
        return values.length === 0 && !isRequired ? OMIT : values.map((value) => (value === OMIT ? null : value));
      },
      write,
    };
  }

  #fixed(field, label, isRequired) {
    const element = make("p", { className: "note" }, make("strong", {}, label), ` is ${JSON.stringify(field.value)}`);
    return { element, read: () => (isRequired ? field.value : OMIT), write: () => undefined };
  }

  /** JSON, checked as it is typed. `field` is what it is of a form, where it is only a part. */
  #editor(path, schema, label, isRequired, field = {}) {
    const input = make("textarea", {
      rows: path === "" ? 8 : 4,
      spellcheck: false,
      className: "json",
      placeholder: path === "" ? "{}" : "",
    });
    const why = field.why === undefined ? "" : `As JSON: ${field.why}.`;
    const element = this.#labelled(path, field, label, isRequired, input, why);
    const parse = () => {
      const text = input.value.trim();
      if (text === "") return path === "" ? {} : OMIT;
      if (text.length > JSON_CHARS_MAX) throw new Error(`is longer than ${JSON_CHARS_MAX} characters`);
      return JSON.parse(text);
    };
    input.oninput = () => {
      const { problem } = this.#byPath.get(path);
      problem.textContent = "";
      input.removeAttribute("aria-invalid");
      try {
        const value = parse();
        const [first] = value === OMIT
          ? []
          : problemsOf(value, path === "" ? schema : { ...schema, ...definitionsOf(this.#schema) });
        if (first !== undefined) problem.textContent = `${first.path || "The value"} ${first.words}.`;
      } catch (error) {
        problem.textContent = error instanceof SyntaxError ? "This is not JSON yet." : error.message;
      }
    };
    return {
      element,
      read: (tell) => {
        try {
          return parse();
        } catch (error) {
          tell(path, error instanceof SyntaxError ? `is not JSON: ${error.message}` : error.message);
          return OMIT;
        }
      },
      write: (value) => (input.value = value === undefined ? "" : JSON.stringify(value, null, 2)),
    };
  }
}

const definitionsOf = ({ $defs, definitions }) => ({ ...($defs && { $defs }), ...(definitions && { definitions }) });

const described = ({ description }) => (description ? [make("p", { className: "note" }, description)] : []);

function boundsText({ isWhole, min, max }) {
  const kind = isWhole ? "A whole number" : "A number";
  if (min !== null && max !== null) return `${kind} from ${min} to ${max}.`;
  if (min !== null) return `${kind} from ${min}.`;
  return max === null ? `${kind}.` : `${kind} up to ${max}.`;
}

/** For what may be null: a box that says so, and lets the control rest. */
function nullBox({ isNullable }, input) {
  if (!isNullable) return null;
  const box = make("input", { type: "checkbox", onchange: () => (input.disabled = box.checked) });
  return {
    element: make("label", { className: "check null" }, box, "null"),
    isNull: () => box.checked,
    set(isNull) {
      box.checked = input.disabled = isNull;
    },
  };
}
