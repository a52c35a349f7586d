/**
 * Canvases as sharp as the screen, in the page's colours: whoever draws gets CSS pixels and the page's tokens.
 *
 * Only what is in sight is drawn: of five hundred lines in a table, thirty. All are measured before any is drawn, since
 * the browser lays the page out again for whoever measures behind a change.
 */

const NEAR = "200px"; // of what is in sight: drawn already, when somebody scrolls there

const draws = new WeakMap(); // canvas → what draws it
const due = new Set();
const seen = new WeakSet();
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
  sight.observe(canvas);
  sizes.observe(canvas);
}

/** With the next frame, however often it is asked for; one that is out of sight, when it comes into it. */
export function redraw(canvas) {
  if (!seen.has(canvas)) return;
  if (due.size === 0) requestAnimationFrame(drawDue);
  due.add(canvas);
}

function drawDue() {
  const measured = [...due].filter((canvas) => canvas.isConnected).map(
    (canvas) => [canvas, canvas.getBoundingClientRect()],
  );
  due.clear();
  for (const [canvas, { width, height }] of measured) if (width > 0 && height > 0) paint(canvas, width, height);
}

function paint(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, { width: wide, height: high });
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  draws.get(canvas)(context, width, height);
}

const sizes = new ResizeObserver((entries) => entries.forEach(({ target }) => redraw(target)));

const sight = new IntersectionObserver((entries) => entries.forEach(see), { rootMargin: NEAR });

function see({ target, isIntersecting }) {
  if (!isIntersecting) {
    seen.delete(target);
    return;
  }
  seen.add(target);
  redraw(target);
}

function redrawAll() {
  colours = null;
  document.querySelectorAll("canvas").forEach(redraw);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
addEventListener("resize", redrawAll); // a zoom, or another screen, changes the ratio
