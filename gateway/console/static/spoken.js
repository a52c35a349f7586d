/** Words for screen readers that everybody else sees elsewhere on the page. */

import { byId } from "./dom.js";

/** Politely, behind what is being read. The same words twice are said twice. */
export function speak(text) {
  const place = byId("spoken");
  place.textContent = place.textContent === text ? `${text}\u00a0` : text;
}
