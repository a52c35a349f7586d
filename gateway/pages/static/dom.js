/** The few things that every part of a page needs. Whatever others wrote goes in as text, never as markup. */

export const byId = (id) => document.getElementById(id);

/** An element: properties by name (`dataset` and `attributes` as objects), children as elements or text; null is none. */
export function make(tag, { dataset, attributes = {}, ...properties } = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  Object.assign(element.dataset, dataset);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

export function button(text, onclick, properties = {}) {
  return make("button", { type: "button", onclick, ...properties }, text);
}

const NOTICE_MS = 12_000;
let clearing = null;

/** Say something to the person, for a while. */
export function notify(text, isError = false) {
  const notice = byId("notice");
  notice.textContent = text;
  notice.classList.toggle("error", isError);
  clearTimeout(clearing);
  clearing = setTimeout(() => (notice.textContent = ""), NOTICE_MS);
}

/** Do something for the person; say so if it fails. */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    notify(error.message, true);
    return undefined;
  }
}

/** Have the text of the element that a button names (`data-copy`) copied when it is clicked, whenever it is added. */
export function copyOnClick() {
  document.addEventListener("click", ({ target }) => {
    const name = target.closest?.("[data-copy]")?.dataset.copy;
    if (name !== undefined) attempt(() => copy(byId(name)));
  });
}

async function copy(element) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(element.textContent);
  } else {
    getSelection().selectAllChildren(element); // not over HTTPS: the old way
    document.execCommand("copy");
  }
  notify("Copied.");
}

/**
 * A function to call at every change: `draw` follows, once in `ms` at most however many changes there are, and not while
 * nobody sees the page.
 */
export function drawnSeldom(draw, ms) {
  let isDue = false;
  let isWaiting = false;
  const wait = () => {
    isWaiting = true;
    setTimeout(() => requestAnimationFrame(now), ms);
  };
  const now = async () => {
    isDue = false;
    try {
      await draw();
    } finally {
      isWaiting = false;
      if (isDue) wait();
    }
  };
  return () => {
    isDue = true;
    if (!isWaiting) wait();
  };
}

export function sizeText(bytes) {
  if (bytes < 1024) return bytes === 1 ? "1 byte" : `${bytes} bytes`;
  return bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}

/** Make the list's items those of `entries`; items of entries that stay are kept, with what is open in them. */
export function syncList(list, entries, idOf, attribute, create, update) {
  const known = new Map([...list.children].map((item) => [item.dataset[attribute], item]));
  const items = entries.map((entry) => {
    const item = known.get(idOf(entry)) ?? create(entry);
    update(item, entry);
    return item;
  });
  for (const item of known.values()) if (!items.includes(item)) item.remove();
  items.forEach((item, at) => list.children[at] !== item && list.insertBefore(item, list.children[at] ?? null));
}
