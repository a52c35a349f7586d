/** Spaces: which echo spaces are open and how much they have; never what is in them. */

import { ask } from "./api.js";
import { since } from "./clock.js";
import { askInDialog } from "./dialog.js";
import { attempt, make, notify } from "./dom.js";
import { bytesText, countText, dateText } from "./formats.js";
import { badge, code, emptyNote, lacking, meter, note, pageHead, write } from "./parts.js";
import { session } from "./session.js";
import { DataTable } from "./table.js";
import { repeat } from "./waiting.js";

const LOOK_MS = 15_000;
const SCOPE = "fleet:write";
const OFF = "Echo spaces are off on this gateway. The setting echo.enabled switches them on.";

export async function open(place, { signal }) {
  let pages = 1;
  const status = note(), empty = emptyNote();
  const limits = make("div", { className: "limits" });
  const more = make("button", { type: "button", hidden: true }, "More");
  const table = new DataTable({
    caption: "Echo spaces",
    columns: [...COLUMNS, { title: "End", value: (row) => row.space_id, draw: (row) => closer(row) }],
    idOf: (row) => row.space_id,
  });
  table.element.hidden = true;
  place.append(
    pageHead("Spaces"),
    ...(session.may(SCOPE) ? [] : [lacking(SCOPE, "Ending a space")]),
    limits,
    status,
    table.element,
    empty,
    more,
  );
  const load = async () => {
    const spaces = [];
    let cursor;
    let answer;
    for (let page = 0; page < pages && cursor !== null; page += 1) {
      answer = await ask("spaces", cursor ? { cursor } : {}, signal);
      spaces.push(...answer.spaces);
      cursor = answer.nextCursor ?? null;
    }
    table.set(spaces);
    table.element.hidden = spaces.length === 0;
    more.hidden = cursor === null;
    const { total, limits: bounds } = answer;
    const isPart = spaces.length > 0 && spaces.length < total;
    write(status, isPart ? `${countText(spaces.length)} of ${countText(total)} are shown.` : "");
    write(empty, bounds === null ? OFF : total === 0 ? "No space is open." : "");
    limits.replaceChildren(...(bounds === null ? [] : limitTiles(total, spaces, bounds)));
  };
  more.onclick = () => {
    pages += 1;
    attempt(load);
  };
  function closer({ space_id: spaceId }) {
    const onclick = () => session.may(SCOPE) && end(spaceId);
    return make(
      "button",
      {
        type: "button",
        className: "danger small",
        ariaLabel: `End the space ${spaceId}`,
        ariaDisabled: String(!session.may(SCOPE)),
        onclick,
      },
      "End",
    );
  }
  function end(spaceId) {
    askInDialog({
      title: "End this space?",
      body: [
        make(
          "p",
          {},
          code(spaceId),
          " ends at once: its link is unknown, everybody in it is disconnected, and everything in it is erased.",
        ),
      ],
      submit: "End it",
      isDangerous: true,
      act: async () => {
        await ask("act", { path: `/admin/spaces/${encodeURIComponent(spaceId)}`, method: "DELETE", body: {} }, signal);
        notify("The space has ended.");
        await load();
      },
    }, signal);
  }
  await repeat(load, LOOK_MS, signal);
}

/** How much of what all spaces together may have is used; of those that are shown. */
function limitTiles(total, spaces, limits) {
  const { spaces_max: spacesMax, total_bytes_max: bytesMax, connections_max: connectionsMax } = limits;
  const sum = (name) => spaces.reduce((all, one) => all + one[name], 0);
  const tile = (label, value, max, text) => make(
    "div",
    {},
    make("span", { className: "note" }, label),
    meter(value, max, `${text(value)} of ${text(max)}`, label),
  );
  return [
    tile("Spaces", total, spacesMax, countText),
    tile("Size", sum("bytes"), bytesMax, bytesText),
    tile(
      "Most connections in one space",
      Math.max(0, ...spaces.map((one) => one.connections)),
      connectionsMax,
      countText,
    ),
  ];
}

const COLUMNS = [
  { title: "Space", value: (row) => row.space_id, draw: (row) => code(row.space_id) },
  {
    title: "Opened",
    className: "when",
    value: (row) => String(row.opened_at_ms),
    draw: (row) => since(row.opened_at_ms),
  },
  { title: "Ends", className: "when middle", value: (row) => dateText(row.ends_at_ms) },
  { title: "Connections", className: "number", value: (row) => countText(row.connections) },
  { title: "Values", className: "number middle", value: (row) => countText(row.keys) },
  { title: "Files", className: "number middle", value: (row) => countText(row.files) },
  { title: "Size", className: "number", value: (row) => bytesText(row.bytes) },
  {
    title: "Kind",
    className: "wide",
    value: (row) => `${row.encrypted} ${row.project_id}`,
    draw: (row) => [row.encrypted ? badge("encrypted") : "", row.project_id ? " of a project" : ""],
  },
];
