/** Canvases as sharp as the screen, in the page's colours: whoever draws gets CSS pixels and the page's tokens. */

const draws = new WeakMap(); // canvas → what draws it
const due = new Set();
let colours = null;

/** The stylesheet's tokens, in the scheme that holds now. */
export function token(name) {
  colours ??= new Map();
  if (!colours.has(name)) {
    colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  }
  return colours.get(name);
}

/** `draw(context, width, height)`; it is called again by `redraw`, and when size, screen or colours change. */
export function drawnBy(canvas, draw) {
  draws.set(canvas, draw);
  sizes.observe(canvas);
  redraw(canvas);
}

/** With the next frame, however often it is asked for. */
export function redraw(canvas) {
  if (due.size === 0) requestAnimationFrame(drawDue);
  due.add(canvas);
}

function drawDue() {
  const canvases = [...due];
  due.clear();
  for (const canvas of canvases) if (canvas.isConnected) paint(canvas);
}

function paint(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  if (width === 0 || height === 0) return;
  const ratio = devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  draws.get(canvas)?.(context, width, height);
}

const sizes = new ResizeObserver((entries) => entries.forEach(({ target }) => redraw(target)));

function redrawAll() {
  colours = null;
  document.querySelectorAll("canvas").forEach((canvas) => draws.has(canvas) && redraw(canvas));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
addEventListener("resize", redrawAll); // a zoom, or another screen, changes the ratio
