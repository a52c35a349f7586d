/**
 * What form a JSON Schema has: a tree of fields that can be drawn, with `json` where one cannot be. Pure.
 *
 * Schemas of nodes' tools are the gateway's own, from its registry of kinds. Still, whatever is in one, this ends:
 * depth, fields and references are bounded. Whether a value fits is `schema-check.js`'s; the gateway has the last word.
 */

export const DEPTH_MAX = 5; // of objects in objects; what lies deeper is written as JSON
export const FIELDS_MAX = 60; // of one object; one with more is written as JSON
export const FORM_FIELDS_MAX = 300; // of all objects together; what is beyond is written as JSON
export const OPTIONS_MAX = 200; // to choose from; more are written as text
const REFERENCES_MAX = 16; // one after another

/** Keywords that say of a value what no control does. */
const UNDRAWN = [
  "allOf", "not", "if", "then", "else", "dependentSchemas", "dependentRequired", "patternProperties", "propertyNames",
  "unevaluatedProperties", "unevaluatedItems", "prefixItems", "contains", "$dynamicRef",
];

/**
 * `{ kind, title, description, isNullable, default, … }`:
 *
 *     object    fields: [{ name, isRequired, field }]        text    isLong, charsMax
 *     number    isWhole, min, max                            flag
 *     choice    options: values                              several options: values, each at most once
 *     list      item, countMin, countMax                     fixed   value
 *     json      schema, why
 */
export function fieldOf(schema) {
  try {
    return fieldAt(schema, { root: schema, room: { fields: FORM_FIELDS_MAX } }, 0);
  } catch {
    return asJson(schema, "it is not a schema that is understood"); // such as `required: 5`
  }
}

/** `form`: the whole schema, and for how many more fields there is room. */
function fieldAt(schema, form, depth) {
  const told = resolved(schema, form.root);
  if (told === null) return asJson(schema, "it refers to what is not in it");
  return drawn(told.schema, form, depth + (told.isReference ? 1 : 0));
}

function drawn(schema, form, depth) {
  if (schema === true || typeof schema !== "object" || schema === null) return asJson(schema, "it takes anything");
  if (depth > DEPTH_MAX) return asJson(schema, "it is too deep");
  const undrawn = UNDRAWN.find((keyword) => keyword in schema);
  if (undrawn !== undefined) return asJson(schema, `it has ${undrawn}`);
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices !== undefined) return alternatives(schema, choices, form, depth);
  const types = [schema.type ?? inferredType(schema)].flat();
  const isNullable = types.includes("null");
  const [type, ...more] = types.filter((one) => one !== "null");
  if (more.length > 0) return asJson(schema, "it takes several types");
  const common = { title: schema.title, description: schema.description, default: schema.default, isNullable };
  if ("const" in schema) return { ...common, kind: "fixed", value: schema.const };
  if (Array.isArray(schema.enum)) {
    const options = schema.enum.filter((one) => one !== null);
    const isPlain = options.every((one) => typeof one !== "object") && options.length <= OPTIONS_MAX;
    if (!isPlain) return asJson(schema, "its choices are not plain");
    return {
      ...common,
      isNullable: schema.enum.includes(null) && (isNullable || schema.type === undefined),
      kind: "choice",
      options,
    };
  }
  switch (type) {
    case "object":
      return objectOf(schema, form, depth, common);
    case "array":
      return listOf(schema, form, depth, common);
    case "string":
      return { ...common, kind: "text", charsMax: schema.maxLength ?? null, isLong: (schema.maxLength ?? 0) > 200 };
    case "integer":
    case "number":
      return { ...common, kind: "number", isWhole: type === "integer", min: lowest(schema), max: highest(schema) };
    case "boolean":
      return { ...common, kind: "flag" };
    default:
      return asJson(schema, "it says no type");
  }
}

/** Something or null, in the words of some generators, can be drawn; other alternatives cannot. */
function alternatives(schema, choices, form, depth) {
  if (Array.isArray(choices)) {
    const rest = choices.filter((one) => one?.type !== "null");
    if (rest.length === 1 && choices.length === 2) {
      const field = fieldAt(rest[0], form, depth);
      if (field.kind === "json") return asJson(schema, field.why);
      return {
        ...field,
        isNullable: true,
        title: schema.title ?? field.title,
        description: schema.description ?? field.description,
        default: schema.default ?? field.default,
      };
    }
  }
  return asJson(schema, "it has alternatives");
}

function objectOf(schema, form, depth, common) {
  const names = Object.keys(schema.properties ?? {});
  if (names.length > FIELDS_MAX) return asJson(schema, "it has too many fields");
  if (names.length > form.room.fields) return asJson(schema, "the form would be too long");
  form.room.fields -= names.length;
  const isOpen = schema.additionalProperties !== undefined && schema.additionalProperties !== false;
  if (isOpen && (names.length === 0 || typeof schema.additionalProperties === "object")) {
    return asJson(schema, "it takes fields of any name");
  }
  const required = new Set(schema.required ?? []);
  if ([...required].some((name) => !names.includes(name))) {
    return asJson(schema, "it asks for a field that it does not tell of");
  }
  const fields = names.map(
    (name) => ({ name, isRequired: required.has(name), field: fieldAt(schema.properties[name], form, depth + 1) }),
  );
  return { ...common, kind: "object", fields };
}

function listOf(schema, form, depth, common) {
  if (schema.items === undefined || Array.isArray(schema.items)) return asJson(schema, "it takes items of any kind");
  const item = fieldAt(schema.items, form, depth + 1);
  if (item.kind === "json") return asJson(schema, item.why);
  if (item.kind === "choice" && schema.uniqueItems && !item.isNullable) return {
    ...common,
    kind: "several",
    options: item.options,
  };
  return { ...common, kind: "list", item, countMin: schema.minItems ?? 0, countMax: schema.maxItems ?? Infinity };
}

const asJson = (schema, why) => ({
  kind: "json",
  schema,
  why,
  title: schema?.title,
  description: schema?.description,
  default: schema?.default,
  isNullable: false,
});

function inferredType(schema) {
  if (schema.properties !== undefined) return "object";
  if (schema.items !== undefined) return "array";
  return undefined;
}

const lowest = ({ minimum, exclusiveMinimum }) => minimum ?? exclusiveMinimum ?? null;
const highest = ({ maximum, exclusiveMaximum }) => maximum ?? exclusiveMaximum ?? null;

// ---- references -----------------------------------------------------------------------------------------------------

/** What is meant, with references into the same document followed; null where there is nothing, or no end. */
export function resolved(schema, root) {
  let at = schema;
  let isReference = false;
  for (let count = 0; typeof at?.$ref === "string"; count += 1) {
    if (count >= REFERENCES_MAX) return null;
    const { $ref, ...beside } = at;
    const target = lookUp($ref, root);
    if (target === undefined || typeof target !== "object" || target === null) return null;
    at = { ...target, ...beside };
    isReference = true;
  }
  return { schema: at, isReference };
}

function lookUp(reference, root) {
  if (reference !== "#" && !reference.startsWith("#/")) return undefined;
  let at = root;
  for (const part of reference.slice(1).split("/").slice(1)) {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, name)) return undefined;
    at = at[name];
  }
  return at;
}
