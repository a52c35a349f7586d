/** Events out of the text of a `text/event-stream`, however it is cut. Other fields and comments are passed over. */

const EVENT_CHARS_MAX = 4 * 1024 * 1024; // of one that is not whole yet; more is no event of ours

export class EventReader {
  #rest = "";

  /** The events that are whole now: `{ name, data }`, the data as text. */
  *read(text) {
    this.#rest += text;
    let end;
    while ((end = this.#rest.indexOf("\n\n")) >= 0) {
      const block = this.#rest.slice(0, end);
      this.#rest = this.#rest.slice(end + 2);
      const event = parse(block);
      if (event !== null) yield event;
    }
    if (this.#rest.length > EVENT_CHARS_MAX) throw new Error("The gateway sent an event without an end.");
  }
}

function parse(block) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line.replace(/\r$/, "")) ?? [];
    if (field === "event") name = value;
    else if (field === "data") data.push(value);
  }
  return data.length === 0 ? null : { name, data: data.join("\n") };
}
