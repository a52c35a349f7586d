/** Where the lines of a chart's grid are. Pure. */

const STEPS = [1, 2, 2.5, 5, 10];
const TIME_STEPS_S = [
  5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800, 2592000,
];

/** Round numbers from at most `min` to at least `max`, some `count` of them. `base` 1024 for bytes. */
export function roundTicks(min, max, count, base = 10) {
  const span = max > min ? max - min : Math.abs(max) || 1;
  const rough = span / Math.max(1, count);
  const power = base ** Math.floor(Math.log(rough) / Math.log(base));
  const steps = base === 10 ? STEPS : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  const step = steps.find((one) => one * power >= rough * 0.999) * power;
  const first = Math.floor(min / step + 1e-9), last = Math.ceil(max / step - 1e-9);
  const ticks = [];
  for (let at = first; at <= Math.max(last, first + 1); at += 1) ticks.push(at * step);
  return ticks;
}

/** Round moments between two, at most `count` of them, each a whole number of steps of the local clock. */
export function timeTicks(fromMs, toMs, count) {
  const rough = (toMs - fromMs) / 1000 / Math.max(1, count);
  const stepMs = 1000 * (TIME_STEPS_S.find((one) => one >= rough) ?? TIME_STEPS_S.at(-1));
  const zoneMs = new Date(fromMs).getTimezoneOffset() * 60_000;
  const ticks = [];
  for (let at = Math.ceil((fromMs - zoneMs) / stepMs) * stepMs + zoneMs; at <= toMs; at += stepMs) ticks.push(at);
  return ticks;
}

/** Of many points as many as there are pixels to show them: the lowest and highest of each bucket stay. */
export function thinned(points, bucketsMax, valueOf) {
  if (points.length <= bucketsMax * 2) return points;
  const size = Math.ceil(points.length / bucketsMax);
  const kept = [];
  for (let at = 0; at < points.length; at += size) {
    const bucket = points.slice(at, at + size);
    let low = 0, high = 0;
    bucket.forEach((point, index) => {
      if (valueOf(point) < valueOf(bucket[low])) low = index;
      if (valueOf(point) > valueOf(bucket[high])) high = index;
    });
    kept.push(...(low === high ? [bucket[low]] : [bucket[Math.min(low, high)], bucket[Math.max(low, high)]]));
  }
  return kept;
}

const STEP_BACK_MS = 10_000; // what comes earlier than the last point by more is of a clock that was set back

/** Points with another behind them. One that was there already changes nothing; a clock set back begins anew. */
export function continued(points, point, max) {
  const last = points.at(-1);
  if (last === undefined || point.at > last.at) return [...points.slice(-(max - 1)), point];
  return point.at < last.at - STEP_BACK_MS ? [point] : points;
}
