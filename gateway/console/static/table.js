/**
 * A table of rows that change: rows are known by an id, and a cell is drawn again only when what it shows has changed.
 * The order is the caller's, and so is sorting: a click on a heading only says what is wanted.
 */

import { make } from "./dom.js";

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
    const lines = rows.map((row) => this.#line(row));
    const ids = new Set(rows.map(this.#idOf));
    for (const [id, { line }] of this.#rows) {
      if (ids.has(id)) continue;
      line.remove();
      this.#rows.delete(id);
    }
    lines.forEach(
      (line, at) => this.#body.children[at] !== line && this.#body.insertBefore(line, this.#body.children[at] ?? null),
    );
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
  #go;
  #limit;
  #offset = 0;
  #buttons;

  constructor(limit, go) {
    this.#limit = limit;
    this.#go = go;
    // Not `disabled`: the one that has the focus would lose it at the end of the table.
    const step = (text, label, offsetOf) => {
      const onclick = ({ currentTarget }) => currentTarget.ariaDisabled !== "true" && this.#go(offsetOf());
      return make("button", { type: "button", ariaLabel: label, onclick }, text);
    };
    this.#buttons = [
      step("«", "First page", () => 0),
      step("‹", "Previous page", () => Math.max(0, this.#offset - this.#limit)),
      step("›", "Next page", () => this.#offset + this.#limit),
      step("»", "Last page", () => Math.floor((this.#total - 1) / this.#limit) * this.#limit),
    ];
    const [first, back, on, last] = this.#buttons;
    this.element = make(
      "nav",
      { className: "pager", ariaLabel: "Pages of the table" },
      first,
      back,
      this.#text,
      on,
      last,
    );
  }

  #total = 0;

  show(offset, shown, total) {
    [this.#offset, this.#total] = [offset, total];
    const number = (value) => value.toLocaleString("en");
    this.#text.textContent = total === 0
      ? "0 of 0"
      : `${number(offset + 1)}–${number(offset + shown)} of ${number(total)}`;
    const isFirst = offset === 0, isLast = offset + shown >= total;
    this.#buttons.forEach((button, at) => (button.ariaDisabled = String(at < 2 ? isFirst : isLast)));
  }
}
