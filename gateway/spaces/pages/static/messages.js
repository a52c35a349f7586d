/** The live messages. However many come, the page keeps the last ones and draws them in batches. */

import { make } from "./dom.js";

const MESSAGES_MAX = 500; // in the page; the oldest goes
const BATCH_MS = 40;
const NEAR_END_PX = 48;

export class MessageLog {
  #list;
  #read;
  #pending = [];
  #isDrawing = false;

  /** `read` gives `{ text }` or `{ note }` of a frame. */
  constructor(list, read) {
    this.#list = list;
    this.#read = read;
  }

  add(frame, isMine) {
    this.#pending.push({ frame, isMine });
    if (this.#pending.length > MESSAGES_MAX) this.#pending.shift();
    if (!this.#isDrawing) {
      this.#isDrawing = true;
      setTimeout(() => this.#draw(), BATCH_MS);
    }
  }

  async #draw() {
    const items = [];
    for (const { frame, isMine } of this.#pending.splice(0)) {
      items.push(item(frame, isMine, await this.#read(frame)));
    }
    const list = this.#list;
    const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < NEAR_END_PX;
    list.append(...items);
    while (list.children.length > MESSAGES_MAX) list.firstChild.remove();
    if (isAtEnd) list.scrollTop = list.scrollHeight;
    this.#isDrawing = this.#pending.length > 0;
    if (this.#isDrawing) setTimeout(() => this.#draw(), BATCH_MS);
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
