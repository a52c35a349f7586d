/**
 * Whether a value fits a JSON Schema, in words for a person: `[{ path, words }]`, none if it does. Pure.
 *
 * It knows what schemas of tools use. A keyword that it does not know it passes over: the gateway checks all of them.
 */

import { resolved } from "./schema-rules.js";

const DEPTH_MAX = 64; // a value, or a reference, that goes deeper is left to the gateway
const PROBLEMS_MAX = 20;
const STEPS_MAX = 50_000; // alternatives may refer to each other: what is not looked at by then is left to the gateway

export function problemsOf(value, schema) {
  const problems = [];
  const tell = (path, words) => problems.length < PROBLEMS_MAX && problems.push({ path, words });
  try {
    look(value, schema, { root: schema, path: "", depth: 0, left: { steps: STEPS_MAX }, tell });
  } catch {
    return problems; // it is not a schema that is understood, such as `required: 5`: the gateway knows
  }
  return problems;
}

const fits = (value, schema, at) => {
  let isFit = true;
  look(value, schema, { ...at, tell: () => (isFit = false) });
  return isFit;
};

function look(value, schema, at) {
  if (schema === true || at.depth > DEPTH_MAX || at.left.steps <= 0) return;
  at.left.steps -= 1;
  if (schema === false) {
    at.tell(at.path, "is not allowed here");
    return;
  }
  const told = resolved(schema, at.root);
  if (told === null || typeof told.schema !== "object" || told.schema === null) return;
  const rules = told.schema;
  const here = { ...at, depth: at.depth + 1 };
  const say = (words) => at.tell(at.path, words);
  if (rules.type !== undefined && ![rules.type].flat().some((type) => isOf(value, type))) {
    say(`must be ${[rules.type].flat().map((type) => TYPES[type] ?? type).join(" or ")}`);
    return;
  }
  if ("const" in rules && !isSame(value, rules.const)) say(`must be ${JSON.stringify(rules.const)}`);
  if (Array.isArray(rules.enum) && !rules.enum.some((one) => isSame(one, value))) say("is none of the choices");
  if (typeof value === "string") lookAtText(value, rules, say);
  else if (typeof value === "number") lookAtNumber(value, rules, say);
  else if (Array.isArray(value)) lookAtList(value, rules, here, say);
  else if (typeof value === "object" && value !== null) lookAtObject(value, rules, here, say);
  lookAtAlternatives(value, rules, here, say);
}

const TYPES = {
  string: "text",
  number: "a number",
  integer: "a whole number",
  boolean: "true or false",
  array: "a list",
  object: "an object",
  null: "null",
};

function isOf(value, type) {
  switch (type) {
    case "integer":
      return Number.isInteger(value);
    case "array":
      return Array.isArray(value);
    case "null":
      return value === null;
    case "object":
      return typeof value === "object" && value !== null && !Array.isArray(value);
    default:
      return typeof value === type;
  }
}

function lookAtText(text, { minLength, maxLength, pattern }, say) {
  const length = [...text].length; // a schema counts characters, not UTF-16
  if (minLength !== undefined && length < minLength) {
    say(minLength === 1 ? "must not be empty" : `needs at least ${minLength} characters`);
  }
  if (maxLength !== undefined && length > maxLength) say(`has ${length} characters; ${maxLength} at most`);
  if (pattern !== undefined && isMatch(pattern, text) === false) say(`must match ${pattern}`);
}

function isMatch(pattern, text) {
  try {
    return new RegExp(pattern, "u").test(text);
  } catch {
    return null; // not in the words of this browser: the gateway knows
  }
}

function lookAtNumber(number, { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf }, say) {
  if (minimum !== undefined && number < minimum) say(`must be at least ${minimum}`);
  if (maximum !== undefined && number > maximum) say(`must be at most ${maximum}`);
  if (exclusiveMinimum !== undefined && number <= exclusiveMinimum) say(`must be more than ${exclusiveMinimum}`);
  if (exclusiveMaximum !== undefined && number >= exclusiveMaximum) say(`must be less than ${exclusiveMaximum}`);
  if (multipleOf > 0 && Math.abs(number / multipleOf - Math.round(number / multipleOf)) > 1e-9) {
    say(`must be a multiple of ${multipleOf}`);
  }
}

function lookAtList(list, { items, minItems, maxItems, uniqueItems }, at, say) {
  if (minItems !== undefined && list.length < minItems) {
    say(`needs at least ${minItems} ${minItems === 1 ? "item" : "items"}`);
  }
  if (maxItems !== undefined && list.length > maxItems) say(`has ${list.length} items; ${maxItems} at most`);
  if (uniqueItems && new Set(list.map(canonical)).size < list.length) say("has the same item twice");
  if (items !== undefined) list.forEach((item, index) => look(item, items, { ...at, path: `${at.path}/${index}` }));
}

function lookAtObject(object, rules, at, say) {
  const { properties = {}, required = [], additionalProperties, minProperties, maxProperties } = rules;
  const names = Object.keys(object);
  for (const name of required) if (!Object.hasOwn(object, name)) at.tell(pathOf(at.path, name), "is required");
  if (minProperties !== undefined && names.length < minProperties) say(`needs at least ${minProperties} fields`);
  if (maxProperties !== undefined && names.length > maxProperties) {
    say(`has ${names.length} fields; ${maxProperties} at most`);
  }
  for (const name of names) {
    const path = pathOf(at.path, name);
    if (Object.hasOwn(properties, name)) look(object[name], properties[name], { ...at, path });
    else if (additionalProperties === false) at.tell(path, "is not a field of this");
    else if (additionalProperties !== undefined) look(object[name], additionalProperties, { ...at, path });
  }
}

function lookAtAlternatives(value, { allOf, anyOf, oneOf, not }, at, say) {
  if (Array.isArray(allOf)) allOf.forEach((one) => look(value, one, at));
  if (Array.isArray(anyOf) && !anyOf.some((one) => fits(value, one, at))) say("fits none of the alternatives");
  if (Array.isArray(oneOf)) {
    const count = oneOf.filter((one) => fits(value, one, at)).length;
    if (count !== 1) say(count === 0 ? "fits none of the alternatives" : "fits more than one of the alternatives");
  }
  if (not !== undefined && fits(value, not, at)) say("is what it must not be");
}

const pathOf = (path, name) => `${path}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`;

const isSame = (one, other) => canonical(one) === canonical(other);

/** The same for the same value, whatever order its fields have. */
export function canonical(value) {
  return JSON.stringify(value, (_, part) =>
    typeof part === "object" && part !== null && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  );
}
