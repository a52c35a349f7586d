/** Who is here, by connection as the room tells it, shown by name. */

import { button, drawnSeldom, make } from "./dom.js";

const ASK_MS = 20_000; // large rooms tell of nobody's coming and going; then we ask
const DRAW_MS = 250; // between two drawings: members may come and go hundreds of times a second
const PEOPLE_MAX = 100; // shown; the others are counted
const SUBS_MAX = 32; // shown of a person; the same
const NAMES_MAX = 200; // offered for a message's target; others can be typed

export class People {
  #room = null;
  #list;
  #names;
  #onPick;
  #members = new Map(); // by connection
  #total = null;
  #myUid = "";
  #changed = drawnSeldom(() => this.#draw(), DRAW_MS);

  /** `onPick` is told of the name that the person wants to write to. */
  constructor(list, names, onPick) {
    this.#list = list;
    this.#names = names;
    this.#onPick = onPick;
    setInterval(() => this.#total !== null && this.#room.who(), ASK_MS);
  }

  follow(room) {
    this.#room = room;
    room.addEventListener("welcome", ({ detail }) => this.#welcome(detail));
    room.addEventListener("who", ({ detail }) => this.#all(detail.members, detail.total));
    room.addEventListener("join", ({ detail }) => this.#join(detail));
    room.addEventListener("leave", ({ detail }) => this.#leave(detail));
  }

  #welcome({ uid, members }) {
    this.#myUid = uid;
    if (members) this.#all(members, members.length);
    else this.#room.who();
  }

  #all(members, total) {
    this.#members = new Map(members.map(({ conn, uid, subs }) => [conn, { uid, subs: new Set(subs) }]));
    this.#total = total > members.length ? total : null;
    this.#changed();
  }

  #join({ conn, uid, subs = [] }) {
    const known = this.#members.get(conn) ?? { uid, subs: new Set() };
    this.#members.set(conn, { uid, subs: new Set([...known.subs, ...subs]) });
    this.#changed();
  }

  #leave({ conn, subs }) {
    const known = this.#members.get(conn);
    if (!known) return;
    if (subs) for (const sub of subs) known.subs.delete(sub);
    else this.#members.delete(conn);
    this.#changed();
  }

  #draw() {
    const people = new Map();
    for (const { uid, subs } of this.#members.values()) {
      const one = people.get(uid) ?? { connections: 0, subs: new Set() };
      one.connections += 1;
      for (const sub of subs) one.subs.add(sub);
      people.set(uid, one);
    }
    const uids = [...people.keys()].sort();
    const items = uids.slice(0, PEOPLE_MAX).map((uid) => this.#item(uid, people.get(uid)));
    if (uids.length > PEOPLE_MAX) items.push(make("li", { textContent: `and ${uids.length - PEOPLE_MAX} more` }));
    if (this.#total !== null) items.push(make("li", { textContent: `${this.#total} connections in all` }));
    this.#list.replaceChildren(...items);
    const subs = new Set([...people.values()].flatMap((one) => [...one.subs]));
    const names = [...uids, ...subs].slice(0, NAMES_MAX);
    this.#names.replaceChildren(...names.map((value) => make("option", { value })));
  }

  #item(uid, { connections, subs }) {
    const isMe = uid === this.#myUid;
    const name = isMe
      ? make("strong", { textContent: uid })
      : button(uid, () => this.#onPick(uid), { className: "plain", title: `Write to ${uid}` });
    const places = [...subs].slice(0, SUBS_MAX);
    if (subs.size > SUBS_MAX) places.push(`and ${subs.size - SUBS_MAX} more`);
    const more = [isMe && "you", connections > 1 && `${connections} connections`, ...places].filter(Boolean);
    const item = make("li", {}, name);
    if (more.length) item.append(" ", make("span", { className: "note", textContent: more.join(" · ") }));
    return item;
  }
}
