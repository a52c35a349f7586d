/** Of a gateway that is several processes, what is kept by each of them is shown of one: that is said beside it. */

import { ask } from "./api.js";
import { code, note } from "./parts.js";
import { session } from "./session.js";

/** `what` it is that one process has. Empty on a gateway of one process, and for whoever may not see the engine. */
export function processNote(what, signal) {
  const element = note();
  if (session.may("fleet:read")) say(element, what, signal).catch(() => undefined); // the page says what is wrong
  return element;
}

async function say(element, what, signal) {
  const { engine } = await ask("engine", {}, signal);
  if (engine === null || !(engine.processes_total > 1)) return;
  element.append(
    `${what} of one process of ${engine.processes_total}. On each machine of the gateway, `,
    code("heliograph audit"),
    " has the lines of all its processes.",
  );
}
