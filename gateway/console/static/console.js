/** The console: who is signed in, which page the address names, and what all pages have around them. */

import { open as agentPage } from "./agent-page.js";
import { open as agentsPage } from "./agents-page.js";
import { ask } from "./api.js";
import { byId, copyOnClick, make } from "./dom.js";
import { open as enginePage } from "./engine-page.js";
import { open as fleetPage } from "./fleet-page.js";
import { dateText, shortId } from "./formats.js";
import { link } from "./link.js";
import { open as logPage } from "./log-page.js";
import { open as nodePage } from "./node-page.js";
import { agentPath, code, lacking, note, pageHead, refusal } from "./parts.js";
import { open as policyPage } from "./policy-page.js";
import { session } from "./session.js";
import { acceptOffer, comeIn, dismissOffer, findAgain, hasLink, isOffered, listen, say, sayEnded } from "./sign-in.js";
import { open as spacesPage } from "./spaces-page.js";
import { open as streamsPage } from "./streams-page.js";
import { open as upstreamsPage } from "./upstreams-page.js";

/** By the first part of the path: what shows it, the scope that its data takes, and its entry in the menu. */
const PAGES = {
  fleet: { open: fleetPage, scope: "fleet:read", title: "Fleet" },
  node: { open: nodePage, scope: "fleet:read", title: "Node", under: "fleet" },
  agents: { open: agentsPage, scope: "spend:read", title: "Agents" },
  agent: { open: agentPage, scope: "spend:read", title: "Agent", under: "agents" },
  policy: { open: policyPage, scope: "fleet:read", title: "Policy" },
  streams: { open: streamsPage, scope: "fleet:read", title: "Streams" },
  spaces: { open: spacesPage, scope: "fleet:read", title: "Spaces" },
  upstreams: { open: upstreamsPage, scope: "fleet:read", title: "Upstreams" },
  engine: { open: enginePage, scope: "fleet:read", title: "Engine" },
  log: { open: logPage, scope: "fleet:read", title: "Log" },
};
const FIRST = "/console/fleet";
const WHERE = "heliograph.console.where"; // the page that a link should lead back to
const NAME = "Heliograph";

let leaving = new AbortController(); // of the page that is shown

// ---- pages ----------------------------------------------------------------------------------------------------------

function whichPage() {
  const [, , name = "", ...rest] = location.pathname.split("/");
  return {
    name,
    argument: rest.length === 1 ? decoded(rest[0]) : "",
    isKnown: Object.hasOwn(PAGES, name) && rest.length <= 1,
  };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Shows the page of the address. The focus goes to its heading, so that readers begin there. */
async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const { name, argument, isKnown } = whichPage();
  const page = PAGES[name];
  const main = byId("main");
  const place = make("div", { className: `page page-${isKnown ? name : "unknown"}` });
  markMenu(isKnown ? (page.under ?? name) : null);
  main.replaceChildren(...(isOffered() ? [passkeyOffer()] : []), place);
  link.set("idle");
  if (!isKnown) {
    title("No such page");
    place.append(
      pageHead("No such page"),
      note("Nothing of the console is at this address. ", make("a", { href: FIRST }, "Fleet"), " shows all nodes."),
    );
    focusHeading(main);
    return;
  }
  title(page.title);
  sessionStorage.setItem(WHERE, location.pathname + location.search);
  if (!session.may(page.scope)) {
    place.append(pageHead(page.title), lacking(page.scope, `The page “${page.title}”`));
    focusHeading(main);
    return;
  }
  try {
    const opened = page.open(place, { argument, query: new URLSearchParams(location.search), signal, title });
    focusHeading(main);
    await opened;
  } catch (error) {
    if (signal.aborted || error.name === "AbortError" || error.status === 401) return;
    showTrouble(place, page, error);
  }
}

function showTrouble(place, page, error) {
  link.set("open");
  if (place.querySelector("h1") === null) place.append(pageHead(page.title));
  place.append(error.scope ? lacking(error.scope, `The page “${page.title}”`) : refusal(error));
  if (error.status === undefined) reportError(error); // not the gateway's no: a mistake of ours
}

function focusHeading(main) {
  (main.querySelector("h1") ?? main).focus({ preventScroll: true });
}

function title(text) {
  document.title = `${text} · ${NAME}`;
}

function markMenu(current) {
  for (const entry of document.querySelectorAll("#pages a")) {
    if (entry.dataset.page === current) {
      entry.setAttribute("aria-current", "page");
      entry.scrollIntoView({ block: "nearest", inline: "center" });
    } else {
      entry.removeAttribute("aria-current");
    }
  }
}

function passkeyOffer() {
  const element = make(
    "aside",
    { className: "offer", ariaLabel: "Passkey" },
    make("p", {}, "Sign in with a passkey next time, without a link."),
    make(
      "button",
      {
        type: "button",
        className: "primary",
        onclick: async () => (await acceptOffer(), isOffered() || element.remove()),
      },
      "Make a passkey",
    ),
    make("button", { type: "button", onclick: () => (dismissOffer(), element.remove()) }, "Not now"),
  );
  return element;
}

// ---- the way around -------------------------------------------------------------------------------------------------

/** To another address of the console, without loading it anew. */
function go(address) {
  history.pushState(null, "", address);
  scrollTo(0, 0);
  show();
}

document.addEventListener("click", (event) => {
  const anchor = event.target.closest?.("a[href^='/console/']");
  if (
    !anchor ||
    anchor.target ||
    anchor.download ||
    event.button !== 0 ||
    event.metaKey ||
    event.ctrlKey ||
    event.shiftKey ||
    event.altKey ||
    event.defaultPrevented
  ) return;
  event.preventDefault();
  go(anchor.getAttribute("href"));
});
document.addEventListener("console:go", ({ detail }) => go(detail));
addEventListener("popstate", () => session.isOpen && !hasLink() && show());
addEventListener("hashchange", async () => {
  if (hasLink()) await comeIn(); // a link was put into the address bar of this page
});
document.addEventListener("keydown", (event) => {
  if (
    event.key !== "/" ||
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    event.target.closest("input, select, textarea, dialog")
  ) return;
  const search = document.querySelector("#main [data-search]");
  if (search === null) return;
  event.preventDefault();
  search.focus();
});
document.addEventListener("click", ({ target }) => {
  const menu = byId("who");
  if (menu.open && !menu.contains(target)) menu.open = false;
});
byId("who").addEventListener("keydown", ({ key, currentTarget }) => {
  if (key !== "Escape") return;
  currentTarget.open = false;
  currentTarget.querySelector("summary").focus();
});
document.querySelector(".skip").onclick = (event) => {
  event.preventDefault(); // an address of its own would be a page of its own
  byId("main").focus();
};
byId("link-retry").onclick = () => link.retryNow();

// ---- who is signed in -----------------------------------------------------------------------------------------------

function showOperator() {
  const { sub, scopes, agent, ends_at_ms: endsAtMs } = session.operator;
  Object.assign(byId("who-agent"), { href: agentPath(agent), title: agent, textContent: shortId(agent) });
  byId("who-sub").textContent = byId("who-name").textContent = sub;
  byId("who-scopes").replaceChildren(
    ...(scopes.length === 0 ? ["none"] : scopes.flatMap((scope, at) => [at > 0 ? " " : "", code(scope)])),
  );
  byId("who-ends").textContent = dateText(endsAtMs);
  byId("who-ends").dateTime = new Date(endsAtMs).toISOString();
  for (const entry of document.querySelectorAll("#pages a")) {
    const { scope } = PAGES[entry.dataset.page];
    const isLacking = !session.may(scope);
    entry.classList.toggle("is-lacking", isLacking);
    entry.title = isLacking ? `needs the scope ${scope}` : "";
    entry.querySelector(".lacking").textContent = isLacking ? `, needs the scope ${scope}` : "";
  }
}

/** Only where there is one: most gateways are a single process. */
async function findEngine() {
  if (!session.may("fleet:read")) return;
  const { engine } = await ask("engine").catch(() => ({ engine: null }));
  document.querySelector("#pages [data-page=engine]").hidden = engine === null;
}

session.addEventListener("open", () => {
  byId("entrance").hidden = true;
  byId("console").hidden = false;
  showOperator();
  findEngine();
  if (location.pathname === "/console" || location.pathname === "/console/") {
    history.replaceState(null, "", sessionStorage.getItem(WHERE) ?? FIRST);
  }
  show();
});
session.addEventListener("end", () => {
  leaving.abort();
  byId("main").replaceChildren();
  byId("who").open = false;
  if (byId("said").textContent === "") sayEnded();
  showEntrance();
});
session.addEventListener("elsewhere", () => session.isOpen || findAgain());
session.addEventListener("ended-elsewhere", () => {
  say("You signed out in another tab.");
  session.end();
});
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible" && !session.isOpen) findAgain();
});

function showEntrance() {
  byId("console").hidden = true;
  byId("entrance").hidden = false;
  document.title = `Sign in · ${NAME}`;
  byId("entrance").querySelector("h1").focus({ preventScroll: true });
}

copyOnClick();
listen();
if (!(await comeIn())) showEntrance();
