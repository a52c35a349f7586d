/** Who is here, by connection as the room tells it, shown by name. */

import { button, make } from "./dom.js";

const ASK_MS = 20_000; // large rooms tell of nobody's coming and going; then we ask

export class People {
  #room = null;
  #list;
  #names;
  #onPick;
  #members = new Map(); // by connection
  #total = null;
  #myUid = "";

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
    this.#draw();
  }

  #join({ conn, uid, subs = [] }) {
    const known = this.#members.get(conn) ?? { uid, subs: new Set() };
    this.#members.set(conn, { uid, subs: new Set([...known.subs, ...subs]) });
    this.#draw();
  }

  #leave({ conn, subs }) {
    const known = this.#members.get(conn);
    if (!known) return;
    if (subs) for (const sub of subs) known.subs.delete(sub);
    else this.#members.delete(conn);
    this.#draw();
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
    this.#list.replaceChildren(...uids.map((uid) => this.#item(uid, people.get(uid))));
    if (this.#total !== null) this.#list.append(make("li", { textContent: `${this.#total} connections in all` }));
    const subs = new Set([...people.values()].flatMap((one) => [...one.subs]));
    const names = [...uids, ...subs].map((value) => make("option", { value }));
    this.#names.replaceChildren(...names);
  }

  #item(uid, { connections, subs }) {
    const isMe = uid === this.#myUid;
    const name = isMe
      ? make("strong", { textContent: uid })
      : button(uid, () => this.#onPick(uid), { className: "plain", title: `Write to ${uid}` });
    const more = [isMe && "you", connections > 1 && `${connections} connections`, ...subs].filter(Boolean);
    const item = make("li", {}, name);
    if (more.length) item.append(" ", make("span", { className: "note", textContent: more.join(" · ") }));
    return item;
  }
}
