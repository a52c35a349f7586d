/**
 * A table of rows that change: rows are known by an id, and a cell is drawn again only when what it shows has changed.
 * The order is the caller's, and so is sorting: a click on a heading only says what is wanted.
 */

import { make } from "./dom.js";
import { countText } from "./formats.js";

/**
 * `columns`: `{ title, sort?, className?, value(row), draw?(row) }`. `value` is what is shown, as text, and what tells
 * whether it has changed; `draw` makes nodes of it. `sort` is the name of the order by this column.
 */
export class DataTable {
  #columns;
  #idOf;
  #body = make("tbody");
  #rows = new Map(); // id → { line, values }
  #headings = new Map();

  constructor({ caption, columns, idOf, onSort = null, className = "" }) {
    this.#columns = columns;
    this.#idOf = idOf;
    const head = make("tr", {}, ...columns.map((column) => this.#heading(column, onSort)));
    this.table = make(
      "table",
      { className },
      make("caption", { className: "hidden" }, caption),
      make("thead", {}, head),
      this.#body,
    );
    /** Wider than the screen, it scrolls by itself, by keyboard too. */
    this.element = make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: caption }, this.table);
  }

  sorted(by, isDescending) {
    for (const [name, heading] of this.#headings) {
      if (name === by) heading.ariaSort = isDescending ? "descending" : "ascending";
      else heading.removeAttribute("aria-sort");
    }
  }

  /** These and no others, in this order. */
  set(rows) {
    const focused = this.#body.contains(document.activeElement) ? document.activeElement : null;
    const lines = rows.map((row) => this.#line(row));
    const ids = new Set(rows.map(this.#idOf));
    for (const [id, { line }] of this.#rows) {
      if (ids.has(id)) continue;
      line.remove();
      this.#rows.delete(id);
    }
    lines.forEach((line, at) => {
      const there = this.#body.children[at];
      if (there !== line) this.#body.insertBefore(line, there ?? null);
    });
    if (focused !== null && focused !== document.activeElement) focused.focus({ preventScroll: true }); // it has moved
  }

  #heading({ title, sort, className = "", hint = "" }, onSort) {
    if (sort === undefined || onSort === null) return make("th", { scope: "col", className, title: hint }, title);
    const control = make("button", { type: "button", className: "sort", onclick: () => onSort(sort) }, title);
    const heading = make("th", { scope: "col", className, title: hint }, control);
    this.#headings.set(sort, heading);
    return heading;
  }

  #line(row) {
    const id = this.#idOf(row);
    let known = this.#rows.get(id);
    if (known === undefined) {
      const cells = this.#columns.map(
        ({ className = "" }, at) => (at === 0 ? make("th", { scope: "row", className }) : make("td", { className })),
      );
      known = { line: make("tr", { dataset: { id } }, ...cells), values: [] };
      this.#rows.set(id, known);
    }
    this.#columns.forEach((column, at) => {
      const value = column.value(row);
      if (known.values[at] === value) return;
      known.values[at] = value;
      known.line.cells[at].replaceChildren(...(column.draw ? [column.draw(row)].flat() : [make("bdi", {}, value)]));
    });
    return known.line;
  }
}

/** For many rows: which part is shown, and the way to the others. `go` gets the offset. */
export class Pager {
  #text = make("span", { className: "number" });
  #at = { offset: 0, limit: 1, total: 0 };
  #buttons;

  constructor(go) {
    // Not `disabled`: the one that has the focus would lose it at the end of the table.
    const step = (text, ariaLabel, offsetOf) => {
      const onclick = ({ currentTarget }) => currentTarget.ariaDisabled !== "true" && go(offsetOf(this.#at));
      return make("button", { type: "button", ariaLabel, onclick }, text);
    };
    this.#buttons = [
      step("«", "First page", () => 0),
      step("‹", "Previous page", ({ offset, limit }) => Math.max(0, offset - limit)),
      step("›", "Next page", ({ offset, limit }) => offset + limit),
      step("»", "Last page", ({ total, limit }) => Math.floor((total - 1) / limit) * limit),
    ];
    const [first, back, on, last] = this.#buttons;
    const parts = [first, back, this.#text, on, last];
    this.element = make("nav", { className: "pager", ariaLabel: "Pages of the table" }, ...parts);
  }

  show({ offset, shown, total, limit }) {
    this.#at = { offset, limit, total };
    const range = `${countText(Math.min(offset + 1, total))}–${countText(offset + shown)}`;
    this.#text.textContent = `${range} of ${countText(total)}`;
    const isFirst = offset === 0, isLast = offset + shown >= total;
    this.#buttons.forEach((button, at) => (button.ariaDisabled = String(at < 2 ? isFirst : isLast)));
  }
}
