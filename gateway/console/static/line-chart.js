/**
 * A line chart over time: axes, a grid of round numbers, one line or a few, the values under the pointer. For screen
 * readers it is a picture with one sentence, and a table of its values behind a button, for everybody.
 */

import { drawnBy, redraw, token } from "./canvas.js";
import { continued, roundTicks, thinned, timeTicks } from "./chart-rules.js";
import { now } from "./clock.js";
import { make } from "./dom.js";
import { clockText, countOf, dayText, spanText } from "./formats.js";

const POINTS_MAX = 3_000; // older ones go first
const TABLE_ROWS_MAX = 30;
const SHORTEST_MS = 60_000; // shown of a live chart that has only begun
const DAY_MS = 86_400_000;
const COLOURS = ["accent", "chart-2", "chart-3", "chart-4"];
const DASHES = [[], [5, 3], [2, 2], [7, 2, 2, 2]]; // told apart without colours, too
const MARGIN = { top: 8, right: 10, bottom: 20, left: 48 };

const DEFAULTS = {
  floor: 0, // what the axis has at least,
  ceiling: null, // at both ends
  spanMs: null, // of a live chart, which shows the last so long; null: all points
  gapMs: Infinity, // points further apart are not joined
  base: 10, // of round numbers: 1024 for bytes
  isStepped: false, // a value holds until the next one
};

let charts = 0;

export class LineChart {
  #points = []; // { at, values }
  #canvas;
  #series;
  #format;
  #options;
  #readout = make("span", { className: "readout number" });
  #table = null;
  #pointerX = null;

  /**
   * `series`: names. `format`: a value as text. The rest are `DEFAULTS`, or others.
   */
  constructor({ title, series, format, ...options }) {
    this.#series = series;
    this.#format = format;
    this.#options = { ...DEFAULTS, ...options };
    this.title = title;
    const id = `chart-${(charts += 1)}`;
    this.#canvas = make("canvas", { className: "chart", role: "img" });
    const toggle = make(
      "button",
      {
        type: "button",
        className: "plain",
        ariaExpanded: "false",
        ariaLabel: `Values of ${title} as a table`,
        onclick: () => this.#toggleTable(toggle),
      },
      "Table",
    );
    this.element = make(
      "figure",
      { className: "charted", attributes: { "aria-labelledby": id } },
      make("figcaption", {}, make("span", { id, className: "title" }, title), this.#readout, toggle),
      this.#canvas,
    );
    if (series.length > 1) this.element.append(legend(series));
    this.#canvas.onpointermove = ({ offsetX }) => this.#point(offsetX);
    this.#canvas.onpointerleave = () => this.#point(null);
    drawnBy(this.#canvas, (context, width, height) => this.#draw(context, width, height));
    this.#say();
  }

  get length() {
    return this.#points.length;
  }

  push(at, values) {
    this.#points = continued(this.#points, { at, values }, POINTS_MAX);
    this.#say();
    redraw(this.#canvas);
  }

  set(points) {
    this.#points = points.slice(-POINTS_MAX);
    this.#say();
    redraw(this.#canvas);
  }

  /** Time has passed: a live chart moves on. */
  tick() {
    if (this.#points.length > 0) redraw(this.#canvas);
  }

  // ---- what it says -------------------------------------------------------------------------------------------------

  #say() {
    const last = this.#points.at(-1);
    if (this.#pointerX === null) this.#readout.textContent = last === undefined ? "" : this.#shortText(last);
    this.#canvas.ariaLabel = this.#sentence(last);
    if (this.#table !== null) this.#fillTable();
  }

  #sentence(last) {
    if (last === undefined) return `${this.title}: no values yet.`;
    const all = this.#points.flatMap(({ values }) => values).filter(Number.isFinite);
    const [low, high] = [Math.min(...all), Math.max(...all)];
    const over = spanText(last.at - this.#points[0].at);
    const range = `between ${this.#format(low)} and ${this.#format(high)}`;
    const count = countOf(this.#points.length, "value");
    return `${this.title}: ${this.#valueText(last)} at last; ${range} in ${count} over ${over}.`;
  }

  #valueText({ values }) {
    if (values.length === 1) return this.#format(values[0]);
    return values.map((value, at) => `${this.#series[at]} ${this.#format(value)}`).join(" · ");
  }

  /** Which is which, the legend tells. */
  #shortText({ values }) {
    return values.map((value) => this.#format(value)).join(" · ");
  }

  #toggleTable(toggle) {
    if (this.#table === null) {
      this.#table = make("div", {
        className: "scroll values",
        tabIndex: 0,
        role: "region",
        ariaLabel: `Values of ${this.title}`,
      });
      this.element.append(this.#table);
      this.#fillTable();
    } else {
      this.#table.remove();
      this.#table = null;
    }
    toggle.ariaExpanded = String(this.#table !== null);
  }

  #fillTable() {
    const head = make("tr", {}, ...["Time", ...this.#series].map((text) => make("th", { scope: "col" }, text)));
    const rows = this.#points.slice(-TABLE_ROWS_MAX).reverse();
    const lines = rows.map(
      ({ at, values }) => make(
        "tr",
        {},
        make("th", { scope: "row" }, this.#timeText(at)),
        ...values.map((value) => make("td", {}, this.#format(value))),
      ),
    );
    this.#table.replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...lines)));
  }

  #timeText(at) {
    const first = this.#points[0]?.at ?? at, last = this.#points.at(-1)?.at ?? at;
    return last - first > DAY_MS ? `${dayText(at)} ${clockText(at).slice(0, 5)}` : clockText(at);
  }

  // ---- what it draws ------------------------------------------------------------------------------------------------

  #point(x) {
    this.#pointerX = x;
    if (x === null) this.#say();
    redraw(this.#canvas);
  }

  #span() {
    const first = this.#points[0]?.at ?? now(), last = this.#points.at(-1)?.at ?? now();
    const { spanMs } = this.#options;
    if (spanMs === null) return [first, Math.max(last, first + 1000)];
    const to = Math.max(now(), last);
    return [to - Math.min(spanMs, Math.max(SHORTEST_MS, to - first)), to];
  }

  #draw(context, width, height) {
    const [from, to] = this.#span();
    const shown = this.#points.filter(({ at }) => at >= from - this.#options.gapMs);
    const all = shown.flatMap(({ values }) => values).filter(Number.isFinite);
    const { floor, ceiling, base } = this.#options;
    const top = Math.max(ceiling ?? -Infinity, ...all, floor);
    const ticks = ceiling !== null && top <= ceiling
      ? [floor, (floor + ceiling) / 2, ceiling]
      : roundTicks(floor, top > floor ? top * 1.05 : floor + 1, 3, base);
    const [low, high] = [ticks[0], ticks.at(-1)];
    const right = width - MARGIN.right, bottom = height - MARGIN.bottom;
    const xOf = (at) => MARGIN.left + ((at - from) / (to - from)) * (right - MARGIN.left);
    const yOf = (value) => bottom - ((value - low) / (high - low)) * (bottom - MARGIN.top);
    this.#drawGrid(context, { ticks, from, to, right, bottom, xOf, yOf });
    context.save();
    context.beginPath();
    context.rect(MARGIN.left, 0, right - MARGIN.left + 4, height);
    context.clip();
    this.#series.forEach((_, index) => this.#drawLine(context, shown, index, xOf, yOf, bottom, width));
    context.restore();
    if (this.#pointerX !== null) this.#drawPointer(context, shown, xOf, yOf, bottom);
  }

  #drawGrid(context, { ticks, from, to, right, bottom, xOf, yOf }) {
    context.font = `11px ${getComputedStyle(this.#canvas).fontFamily}`;
    context.fillStyle = token("soft");
    context.strokeStyle = token("line");
    context.lineWidth = 1;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const tick of ticks) {
      const y = Math.round(yOf(tick)) + 0.5;
      context.beginPath();
      context.moveTo(MARGIN.left, y);
      context.lineTo(right, y);
      context.stroke();
      context.fillText(this.#format(tick), MARGIN.left - 6, y);
    }
    context.textBaseline = "alphabetic";
    const text = to - from > DAY_MS ? dayText : (at) => clockText(at).slice(0, to - from > 600_000 ? 5 : 8);
    for (const tick of timeTicks(from, to, (right - MARGIN.left) / 90)) {
      const x = xOf(tick);
      const half = context.measureText(text(tick)).width / 2;
      if (x - half < 0 || x + half > right + MARGIN.right) continue;
      context.textAlign = "center";
      context.fillText(text(tick), x, bottom + 15);
    }
  }

  #drawLine(context, points, index, xOf, yOf, bottom, width) {
    const drawn = thinned(
      points.filter(({ values }) => Number.isFinite(values[index])),
      width,
      ({ values }) => values[index],
    );
    if (drawn.length === 0) return;
    const { gapMs, isStepped } = this.#options;
    const colour = token(COLOURS[index % COLOURS.length]);
    const runs = [];
    drawn.forEach((point, at) => {
      if (at === 0 || point.at - drawn[at - 1].at > gapMs) runs.push([]);
      runs.at(-1).push(point);
    });
    context.strokeStyle = context.fillStyle = colour;
    for (const run of runs) {
      context.beginPath();
      run.forEach(({ at, values }, place) => {
        const [x, y] = [xOf(at), yOf(values[index])];
        if (place > 0 && isStepped) context.lineTo(x, yOf(run[place - 1].values[index]));
        context[place === 0 ? "moveTo" : "lineTo"](x, y);
      });
      context.lineWidth = 1.7;
      context.lineJoin = "round";
      context.setLineDash(DASHES[index % DASHES.length]);
      context.stroke();
      context.setLineDash([]);
      if (this.#series.length === 1 && run.length > 1) {
        context.lineTo(xOf(run.at(-1).at), bottom);
        context.lineTo(xOf(run[0].at), bottom);
        context.closePath();
        context.globalAlpha = 0.1;
        context.fill();
        context.globalAlpha = 1;
      }
    }
    const last = drawn.at(-1);
    context.beginPath();
    context.arc(xOf(last.at), yOf(last.values[index]), 2.6, 0, 2 * Math.PI);
    context.fill();
  }

  #drawPointer(context, points, xOf, yOf, bottom) {
    if (points.length === 0) return;
    const nearest = points.reduce(
      (best, point) => (
        Math.abs(xOf(point.at) - this.#pointerX) < Math.abs(xOf(best.at) - this.#pointerX) ? point : best
      ),
    );
    const x = Math.round(xOf(nearest.at)) + 0.5;
    context.strokeStyle = token("soft");
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x, MARGIN.top);
    context.lineTo(x, bottom);
    context.stroke();
    nearest.values.forEach((value, index) => {
      if (!Number.isFinite(value)) return;
      context.fillStyle = token(COLOURS[index % COLOURS.length]);
      context.beginPath();
      context.arc(x, yOf(value), 3.2, 0, 2 * Math.PI);
      context.fill();
    });
    this.#readout.textContent = `${this.#timeText(nearest.at)} · ${this.#shortText(nearest)}`;
  }
}

function legend(series) {
  const items = series.map((name, at) => make("li", { dataset: { series: String(at % COLOURS.length) } }, name));
  return make("ul", { className: "legend" }, ...items);
}
