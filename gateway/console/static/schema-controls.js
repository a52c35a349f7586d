/**
 * The controls of a form: one for each kind of field, each `{ element, read(tell), write(value) }`. `read` is the value
 * as it is typed, or `OMIT`; what is no value at all it tells, with its place. `write(undefined)` empties.
 *
 * `places` is filled: by JSON pointer, where a problem with that part of the value is to be said.
 */

import { make } from "./dom.js";
import { problemsOf } from "./schema-check.js";

export const OMIT = Symbol("left out");
const JSON_CHARS_MAX = 60_000; // of arguments; the gateway takes bodies of 64 KiB
const ITEMS_DRAWN_MAX = 20; // of a list, before anybody has asked for one

let names = 0;

/** `at`: `{ path, label, isRequired, places, root }`, where `root` is the schema that references are into. */
export function controlOf(field, at) {
  return CONTROLS[field.kind](field, at);
}

const CONTROLS = { object, text, number, flag, choice, several, list, fixed, json };

// ---- single values --------------------------------------------------------------------------------------------------

function text(field, at) {
  const plain = { autocomplete: "off", spellcheck: false };
  const input = field.isLong ? make("textarea", { rows: 3, ...plain }) : make("input", { type: "text", ...plain });
  const limits = field.charsMax === null ? "" : `At most ${field.charsMax} characters.`;
  const valueOf = () => (input.value === "" && !at.isRequired ? OMIT : input.value);
  return orNull(field, input, labelled(field, at, input, limits), valueOf);
}

function number(field, at) {
  const input = make("input", { type: "number", step: field.isWhole ? "1" : "any" });
  if (field.min !== null) input.min = field.min;
  if (field.max !== null) input.max = field.max;
  const valueOf = (tell) => {
    if (input.validity.badInput) tell(at.path, "is not a number");
    return input.value === "" ? OMIT : Number(input.value); // a bad input has no value
  };
  return orNull(field, input, labelled(field, at, input, boundsText(field)), valueOf);
}

/** What may be null has a box that says so, and lets the control rest. */
function orNull({ isNullable }, input, element, valueOf) {
  const box = make("input", { type: "checkbox", onchange: () => (input.disabled = box.checked) });
  if (isNullable) element.append(make("label", { className: "check null" }, box, "null"));
  return {
    element,
    read: (tell) => (box.checked ? null : valueOf(tell)),
    write(value) {
      box.checked = input.disabled = isNullable && value === null;
      input.value = value ?? "";
    },
  };
}

function flag(field, at) {
  return choice({ ...field, options: [true, false] }, at, (value) => (value ? "yes" : "no"));
}

function choice(field, at, textOf = String) {
  const options = [...field.options, ...(field.isNullable ? [null] : [])];
  const items = options.map(
    (value, index) => make("option", { value: String(index) }, value === null ? "null" : textOf(value)),
  );
  const select = make("select", {}, make("option", { value: "" }, at.isRequired ? "Choose" : "Leave it out"), ...items);
  return {
    element: labelled(field, at, select, ""),
    read: () => (select.value === "" ? OMIT : options[Number(select.value)]),
    write: (value) => (select.value = value === undefined ? "" : String(options.indexOf(value))),
  };
}

function fixed(field, { label, isRequired }) {
  const element = make("p", { className: "note" }, make("strong", {}, label), ` is ${JSON.stringify(field.value)}`);
  return { element, read: () => (isRequired ? field.value : OMIT), write: () => undefined };
}

/** What cannot be drawn, as JSON; it is checked as it is typed. */
function json(field, at) {
  const { path, root } = at;
  const isWhole = path === "";
  const input = make("textarea", { rows: isWhole ? 8 : 4, spellcheck: false, className: "json" });
  const element = labelled(field, at, input, isWhole ? "" : `As JSON: ${field.why}.`);
  const schema = isWhole ? root : { ...field.schema, $defs: root.$defs, definitions: root.definitions };
  const parsed = () => {
    const typed = input.value.trim();
    if (typed === "") return isWhole ? {} : OMIT;
    if (typed.length > JSON_CHARS_MAX) throw new Error(`is longer than ${JSON_CHARS_MAX} characters`);
    return JSON.parse(typed);
  };
  const look = () => {
    try {
      const value = parsed();
      const [first] = value === OMIT ? [] : problemsOf(value, schema);
      return first === undefined ? "" : `${first.path || "The value"} ${first.words}.`;
    } catch (error) {
      return error instanceof SyntaxError ? "This is not JSON yet." : `This ${error.message}.`;
    }
  };
  input.oninput = () => {
    input.removeAttribute("aria-invalid");
    at.places.get(path).problem.textContent = look();
  };
  return {
    element,
    read(tell) {
      try {
        return parsed();
      } catch (error) {
        tell(path, error instanceof SyntaxError ? `is not JSON: ${error.message}` : error.message);
        return OMIT;
      }
    },
    write: (value) => (input.value = value === undefined ? "" : JSON.stringify(value, null, 2)),
  };
}

// ---- several values -------------------------------------------------------------------------------------------------

function object(field, at) {
  const { path, label, isRequired } = at;
  const parts = field.fields.map(({ name, isRequired: isAsked, field: inner }) => {
    const pointer = `${path}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`;
    return { name, ...controlOf(inner, { ...at, path: pointer, label: inner.title ?? name, isRequired: isAsked }) };
  });
  const body = parts.map(({ element }) => element);
  if (parts.length === 0) body.push(make("p", { className: "note" }, "It takes no arguments."));
  const element = label === null
    ? make("div", { className: "fields" }, ...body)
    : make("fieldset", { className: "fields" }, legendOf(at), ...described(field), ...body);
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

function several(field, at) {
  const boxes = field.options.map((value) => ({ value, box: make("input", { type: "checkbox" }) }));
  const problem = make("p", { className: "problem" });
  const choices = boxes.map(
    ({ value, box }) => make("label", { className: "check" }, box, make("bdi", {}, String(value))),
  );
  const body = [legendOf(at), ...described(field), make("div", { className: "choices" }, ...choices), problem];
  at.places.set(at.path, { path: at.path, input: boxes[0]?.box ?? null, problem });
  return {
    element: make("fieldset", { className: "several" }, ...body),
    read() {
      const values = boxes.filter(({ box }) => box.checked).map(({ value }) => value);
      return values.length === 0 && !at.isRequired ? OMIT : values;
    },
    write: (value) => boxes.forEach(({ value: one, box }) => (box.checked = value?.includes(one) ?? false)),
  };
}

function list(field, at) {
  const { path, label, isRequired, places } = at;
  const problem = make("p", { className: "problem" });
  const items = make("div", { className: "items" });
  let parts = [];
  const append = (value) => {
    const name = `${label} ${parts.length + 1}`;
    const part = controlOf(field.item, { ...at, path: `${path}/${parts.length}`, label: name, isRequired: true });
    const onclick = () => remove(part);
    const button = make("button", { type: "button", ariaLabel: `Remove ${name}`, onclick }, "Remove");
    items.append(make("div", { className: "item" }, part.element, button));
    parts.push(part);
    if (value !== undefined) part.write(value);
  };
  const write = (values) => {
    parts = [];
    items.replaceChildren();
    if (Array.isArray(values)) values.forEach((value) => append(value === OMIT ? undefined : value));
  };
  /** Those behind it get other numbers, which their labels and problems go by: so all are drawn again. */
  const remove = (part) => {
    write(parts.filter((one) => one !== part).map(({ read }) => read(() => undefined)));
    add.focus();
  };
  const add = make("button", { type: "button" }, `Add to ${label}`);
  add.onclick = () => {
    if (parts.length >= field.countMax) return;
    append(undefined);
    items.lastChild.querySelector("input, select, textarea")?.focus();
  };
  places.set(path, { path, input: add, problem });
  const isNested = field.item.kind === "list" || field.item.kind === "object"; // whose own items are drawn too
  const drawnMax = isNested ? 1 : ITEMS_DRAWN_MAX;
  for (let count = 0; isRequired && count < Math.min(field.countMin, drawnMax); count += 1) append(undefined);
  return {
    element: make("fieldset", { className: "list-field" }, legendOf(at), ...described(field), items, add, problem),
    read(tell) {
      const values = parts.map(({ read }) => read(tell));
      values.forEach((value, index) => value === OMIT && tell(`${path}/${index}`, "is empty"));
      return values.length === 0 && !isRequired ? OMIT : values.map((value) => (value === OMIT ? null : value));
    },
    write,
  };
}

// ---- around a control -----------------------------------------------------------------------------------------------

/** A label, the control, what it is for, and a place for what is wrong with it. */
function labelled(field, { path, label, isRequired, places }, input, limits) {
  const id = `field-${(names += 1)}`;
  input.id = id;
  const problem = make("p", { className: "problem", id: `${id}-problem` });
  const byDefault = field.default === undefined ? "" : `Default: ${JSON.stringify(field.default)}.`;
  const about = [field.description, limits, byDefault].filter(Boolean).join(" ");
  const hint = make("p", { className: "note", id: `${id}-about` }, about);
  input.setAttribute("aria-describedby", about ? `${hint.id} ${problem.id}` : problem.id);
  if (isRequired) input.setAttribute("aria-required", "true");
  places.set(path, { path, input, problem });
  const caption = make("label", { htmlFor: id }, label, star(isRequired));
  return make("div", { className: "field" }, caption, input, about ? hint : null, problem);
}

const legendOf = ({ label, isRequired }) => make("legend", {}, label, star(isRequired));
const star = (isRequired) => (isRequired ? make("span", { className: "required", title: "required" }, " *") : "");
const described = ({ description }) => (description ? [make("p", { className: "note" }, description)] : []);

function boundsText({ isWhole, min, max }) {
  const kind = isWhole ? "A whole number" : "A number";
  if (min !== null && max !== null) return `${kind} from ${min} to ${max}.`;
  if (min !== null) return `${kind} from ${min}.`;
  return max === null ? `${kind}.` : `${kind} up to ${max}.`;
}
