/** Live charts of a node's metrics, from the frames of its feed: those that it sends, whichever they are. */

import { make } from "./dom.js";
import { bytesText, percentText, shortNumber } from "./formats.js";
import { LineChart } from "./line-chart.js";
import { note } from "./parts.js";

const SPAN_MS = 5 * 60_000;
const GAP_MS = 30_000; // frames come every 5 s at most: after so long without one, the line breaks off
const TICK_MS = 1_000;
const CHARTS_MAX = 12; // of fields that nobody here knows; those beyond are not drawn
const CALM = { spanMs: SPAN_MS, gapMs: GAP_MS };

/** Fields of a frame that belong together; whichever else is a number has a chart of its own. */
const KNOWN = [
  { title: "CPU", fields: ["cpu_pct"], series: ["CPU"], format: percentText, ceiling: 100 },
  {
    title: "Memory",
    fields: ["mem_bytes"],
    series: ["used"],
    format: bytesText,
    base: 1024,
    ceilingField: "mem_total_bytes",
  },
  {
    title: "Load",
    fields: ["load_1m", "load_5m", "load_15m"],
    series: ["1 min", "5 min", "15 min"],
    format: shortNumber,
  },
  { title: "Disk", fields: ["disk_pct"], series: ["disk"], format: percentText, ceiling: 100 },
];
const NEVER = new Set(["ts_ms", "mem_total_bytes", ...KNOWN.flatMap(({ fields }) => fields)]);

export class NodeCharts {
  #charts = new Map(); // title → { chart, fields }
  #grid = make("div", { className: "charts" });
  #waiting = note("Waiting for the first frame …");

  constructor(signal) {
    this.element = make("div", { className: "charts-of-node" }, this.#waiting, this.#grid);
    const ticking = setInterval(
      () => document.visibilityState === "visible" && this.#charts.forEach(({ chart }) => chart.tick()),
      TICK_MS,
    );
    signal.addEventListener("abort", () => clearInterval(ticking));
  }

  /** The node as it is now: whether frames can come at all. */
  show({ state, capabilities }) {
    if (this.#charts.size > 0) return;
    const hasMetrics = (capabilities ?? []).some(({ verbs }) => verbs?.includes("subscribe"));
    if (state !== "live") this.#waiting.textContent = "The node is not connected. Charts begin when it is.";
    else if (!hasMetrics) this.#waiting.textContent = "This node has no metrics to follow.";
    else this.#waiting.textContent = "Waiting for the first frame …";
  }

  /** At the gateway's time: a node's own clock may be anywhere. */
  take({ cap_id: capId, at_ms: atMs, frame }) {
    if (typeof frame !== "object" || frame === null) return;
    this.#waiting.hidden = true;
    for (const known of KNOWN) {
      if (known.fields.every((name) => Number.isFinite(frame[name]))) this.#push(capId, known, atMs, frame);
    }
    for (const [name, value] of Object.entries(frame)) {
      if (NEVER.has(name) || !Number.isFinite(value)) continue;
      this.#push(
        capId,
        { title: name, fields: [name], series: [name], format: shortNumber, floor: Math.min(0, value) },
        atMs,
        frame,
      );
    }
  }

  #push(capId, { title, fields, series, format, ceiling = null, ceilingField, base, floor = 0 }, at, frame) {
    const key = `${capId}\n${title}`;
    let known = this.#charts.get(key);
    if (known === undefined) {
      if (this.#charts.size >= CHARTS_MAX) return;
      const top = ceilingField === undefined ? ceiling : (frame[ceilingField] ?? null);
      const isSecond = [...this.#charts.keys()].some((other) => other.endsWith(`\n${title}`));
      const chart = new LineChart({
        ...CALM,
        title: isSecond ? `${title} (${capId})` : title,
        series,
        format,
        ceiling: top,
        base,
        floor,
      });
      this.#charts.set(key, (known = { chart }));
      this.#grid.append(chart.element);
    }
    known.chart.push(at, fields.map((name) => frame[name]));
  }
}
