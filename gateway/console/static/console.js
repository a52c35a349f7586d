/** Signs in by the link's fragment, which stays in memory once it is read, and says who is signed in. */

const said = document.getElementById("said");
const link = new URLSearchParams(location.hash.slice(1)).get("k");

// Neither the address bar nor the history keeps it.
history.replaceState(null, "", location.pathname);

async function ask(name, body) {
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch(`/console/api/${name}`, { method: "POST", headers, body: JSON.stringify(body) });
  const told = await answer.json();
  if (!answer.ok) throw new Error(`${told.message} ${told.suggested_fix}`);
  return told;
}

try {
  const { operator } = await (link ? ask("session", { link }) : ask("whoami", {}));
  said.textContent = `Signed in as ${operator.sub}.`;
} catch (error) {
  said.textContent = error.message;
}
