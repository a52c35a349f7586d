/** The live messages. However many come, the page keeps the last ones and draws them in batches. */

import { drawnSeldom, make } from "./dom.js";

const MESSAGES_MAX = 500; // in the page; the oldest goes
const CHARS_MAX = 1_000_000; // of all that are in the page; the same
const DRAW_MS = 40; // between two drawings
const NEAR_END_PX = 48;

export class MessageLog {
  #list;
  #read;
  #pending = [];
  #chars = 0;
  #changed = drawnSeldom(() => this.#draw(), DRAW_MS);

  /** `read` gives `{ text }` or `{ note }` of a frame. */
  constructor(list, read) {
    this.#list = list;
    this.#read = read;
  }

  add(frame, isMine) {
    this.#pending.push({ frame, isMine });
    if (this.#pending.length > MESSAGES_MAX) this.#pending.shift();
    this.#changed();
  }

  async #draw() {
    const items = [];
    for (const { frame, isMine } of this.#pending.splice(0)) {
      items.push(item(frame, isMine, await this.#read(frame)));
    }
    const list = this.#list;
    const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < NEAR_END_PX;
    list.append(...items);
    for (const one of items) this.#chars += one.textContent.length;
    while (list.children.length > MESSAGES_MAX || (this.#chars > CHARS_MAX && list.children.length > 1)) {
      this.#chars -= list.firstElementChild.textContent.length;
      list.firstElementChild.remove();
    }
    if (isAtEnd) list.scrollTop = list.scrollHeight;
  }
}

function item(frame, isMine, { text, note }) {
  const at = new Date(frame.at);
  const to = [frame.sub && `in ${frame.sub}`, frame.tuid && `to ${frame.tuid}`].filter(Boolean).join(", ");
  const head = make("p", { className: "head" }, make("strong", { textContent: frame.uid }));
  if (to) head.append(make("span", { className: "to", textContent: to }));
  head.append(make("time", { dateTime: frame.at, textContent: at.toLocaleTimeString() }));
  const body = note === undefined ? { className: "body", textContent: text } : { className: "note", textContent: note };
  return make("li", { className: isMine ? "mine" : "" }, head, make("div", body));
}
