/** How many nodes are in which state: as numbers that filter when they are clicked, and as one bar. */

import { make } from "./dom.js";
import { STATES } from "./fleet-query.js";
import { countText } from "./formats.js";

const MEANINGS = {
  live: "connected now",
  away: "not connected",
  expired: "their manifest has expired",
  enrolled: "never connected yet",
  revoked: "for good",
};

export class FleetCounts {
  #tiles = new Map();

  /** `pick` gets the state that was clicked. */
  constructor(pick) {
    const list = make("ul", { className: "counts", ariaLabel: "Nodes by state" });
    const share = make("div", { className: "share", ariaHidden: "true" });
    for (const state of STATES) {
      const number = make("span", { className: "number" }, "–");
      const button = make("button", { type: "button", title: `${state}: ${MEANINGS[state]}`, ariaPressed: "false" });
      button.append(number, make("span", { className: "word" }, state));
      button.dataset.word = state;
      button.onclick = () => pick(state);
      const part = make("span", { dataset: { word: state } });
      this.#tiles.set(state, { number, button, part });
      list.append(make("li", {}, button));
      share.append(part);
    }
    this.elements = [list, share];
  }

  show(counts, picked) {
    for (const [state, { number, button, part }] of this.#tiles) {
      number.textContent = countText(counts[state]);
      button.ariaPressed = String(state === picked);
      part.style.flexGrow = String(counts[state]);
      part.hidden = counts[state] === 0;
    }
  }
}
