/** A line of a few numbers, as small as a word. The number beside it says what it is; so it is hidden from readers. */

import { drawnBy, redraw, token } from "./canvas.js";
import { make } from "./dom.js";

export function sparkline(values) {
  const canvas = make("canvas", { className: "spark", ariaHidden: "true" });
  let shown = values;
  drawnBy(canvas, (context, width, height) => drawSpark(context, width, height, shown));
  return {
    element: canvas,
    show(next) {
      shown = next;
      redraw(canvas);
    },
  };
}

function drawSpark(context, width, height, values) {
  const max = Math.max(...values, 0);
  const base = height - 1.5;
  context.strokeStyle = token("line");
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(0, base + 0.5);
  context.lineTo(width, base + 0.5);
  context.stroke();
  if (values.length < 2 || max <= 0) return;
  const step = width / (values.length - 1);
  const yOf = (value) => base - (value / max) * (height - 4);
  context.beginPath();
  values.forEach((value, at) => context[at === 0 ? "moveTo" : "lineTo"](at * step, yOf(value)));
  context.strokeStyle = token("accent");
  context.lineWidth = 1.4;
  context.lineJoin = "round";
  context.stroke();
  context.lineTo(width, base);
  context.lineTo(0, base);
  context.closePath();
  context.globalAlpha = 0.13;
  context.fillStyle = token("accent");
  context.fill();
  context.globalAlpha = 1;
}
