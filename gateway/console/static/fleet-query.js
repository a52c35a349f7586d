/** What of the fleet is wanted: as the address has it, and as the gateway is asked. Pure. */

export const STATES = ["live", "away", "expired", "enrolled", "revoked"];
export const SIZES = [50, 100, 250, 500]; // rows on a page, to choose from
const SIZE = 100; // unless the person wants otherwise
const SORTS = ["name", "state", "since", "left", "last_call", "frames_per_s", "drops", "node_id"];
const LARGEST_FIRST = new Set(["since", "last_call", "frames_per_s", "drops"]);

/** From the address; what makes no sense there is left out. */
export function wantedOf(query) {
  const sort = query.get("sort") ?? "name";
  const limit = Number(query.get("limit") ?? SIZE);
  const offset = Number(query.get("offset") ?? 0);
  return {
    text: query.get("text") ?? "",
    tags: query.getAll("tag"),
    state: STATES.includes(query.get("state")) ? query.get("state") : "",
    tenant: query.get("tenant") ?? "",
    sort: SORTS.find((one) => one === sort.replace(/^-/, "")) ?? "name",
    descending: sort.startsWith("-"),
    limit: SIZES.includes(limit) ? limit : SIZE,
    offset: Number.isSafeInteger(offset) && offset > 0 ? offset : 0,
  };
}

export function addressOf({ text, tags, state, tenant, sort, descending, offset, limit }) {
  const fields = new URLSearchParams();
  if (text) fields.set("text", text);
  for (const tag of tags) fields.append("tag", tag);
  if (state) fields.set("state", state);
  if (tenant) fields.set("tenant", tenant);
  if (sort !== "name" || descending) fields.set("sort", `${descending ? "-" : ""}${sort}`);
  if (offset > 0) fields.set("offset", offset);
  if (limit !== SIZE) fields.set("limit", limit);
  return `/console/fleet${fields.size > 0 ? `?${fields}` : ""}`;
}

export function bodyOf({ text, tags, state, tenant, sort, descending, offset, limit }) {
  const body = { sort, descending, offset, limit };
  if (text) body.text = text;
  if (tags.length > 0) body.tags = tags;
  if (state) body.state = state;
  if (tenant) body.tenant = tenant;
  return body;
}

export const isFiltered = ({ text, tags, state, tenant }) => Boolean(text || tags.length > 0 || state || tenant);

/** The order by a column: the other way round if it is that already; else as one wants to see it first. */
export function sortedBy(wanted, by) {
  return { sort: by, descending: wanted.sort === by ? !wanted.descending : LARGEST_FIRST.has(by) };
}
