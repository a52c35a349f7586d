// A client as anybody would write one on the TypeScript SDK 1.x: `node client.mjs sdk-1-12`, with the plan as JSON on
// the first line of standard input. It takes tools as they are listed and assumes nothing about their names. What it
// finds goes to standard output, a line of JSON for each check; `{"ask": …}` asks the runner to do something first.
import { createInterface } from "node:readline";

const sdk = process.argv[2];
const { Client } = await import(`${sdk}/client/index.js`);
const { StreamableHTTPClientTransport } = await import(`${sdk}/client/streamableHttp.js`);
const types = await import(`${sdk}/types.js`);

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const warnings = [];
for (const level of ["warn", "error", "log"]) console[level] = (...said) => warnings.push(said.join(" "));

const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const plan = JSON.parse((await input.next()).value);

async function ask(what) {
  say({ ask: what });
  return JSON.parse((await input.next()).value);
}

async function check(name, run) {
  try {
    await run();
    say({ check: name, problem: null });
  } catch (error) {
    say({ check: name, problem: String(error?.stack ?? error).slice(0, 2000) });
  }
}

function expect(holds, why) {
  if (!holds) throw new Error(typeof why === "string" ? why : JSON.stringify(why));
}

async function connected(token) {
  const client = new Client({ name: sdk, version: "1" }, { capabilities: {} });
  const requestInit = { headers: { Authorization: `Bearer ${token}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL(plan.url), { requestInit }));
  return client;
}

async function pages(list, what) {
  const items = [];
  let count = 0;
  let cursor;
  do {
    const page = await list(cursor === undefined ? {} : { cursor });
    items.push(...page[what]);
    cursor = page.nextCursor;
    count += 1;
  } while (cursor !== undefined);
  return { items, count };
}

function next(client, schema, holds = () => true) {
  return new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error("no notification came")), plan.patience_ms);
    client.setNotificationHandler(schema, (notification) => {
      if (holds(notification)) {
        clearTimeout(late);
        resolve(notification);
      }
    });
  });
}

/** What a model reads of a failure: the text of a result with isError. */
async function failure(client, tool, args) {
  const result = await client.callTool({ name: tool.name, arguments: args });
  expect(result.isError === true, result);
  expect(result.structuredContent === undefined, result);
  return { text: result.content[0].text, meta: result._meta };
}

async function failsWith(client, tool, args, code) {
  const { text, meta } = await failure(client, tool, args);
  const error = JSON.parse(text);
  expect(error.code === code && error.suggested_fix && error.correlation_id, text);
  expect(JSON.stringify(meta["io.heliograph/error"]) === text, meta);
}

async function refusedWith(client, tool, args, code, word) {
  let result;
  try {
    result = await client.callTool({ name: tool.name, arguments: args });
  } catch (error) {
    expect(error.code === code && error.data?.code === word, `${error.code} ${error.message} ${JSON.stringify(error.data)}`);
    return;
  }
  throw new Error(`was answered: ${JSON.stringify(result)}`);
}

const client = await connected(plan.tokens.all);
let tools = [];
let toolNews = 0;
if (!plan.tools_change) client.setNotificationHandler(types.ToolListChangedNotificationSchema, () => void (toolNews += 1));
/** What comes when a node does: on a view whose tools stay, only the list of resources changes. */
const listChanged = () =>
  next(client, plan.tools_change ? types.ToolListChangedNotificationSchema : types.ResourceListChangedNotificationSchema);
/** A tool of one node, by how it is described, with what its view wants as arguments to reach that node. */
const find = (node, words) => {
  const isIt = (tool) => tool.description?.startsWith(words);
  const own = tools.find((tool) => isIt(tool) && tool.name.includes(node));
  if (own) return { ...own, more: {} };
  const shared = tools.find((tool) => isIt(tool) && tool.inputSchema.properties?.node);
  expect(shared, `no tool for ${words}`);
  return { ...shared, more: { node } };
};
async function structure(tool, args) {
  const result = await client.callTool({ name: tool.name, arguments: args });
  expect(!result.isError && result.structuredContent, result);
  return result.structuredContent;
}
const look = (node) => structure(find(node, plan.words.look), { node });
const upstream = (name) => tools.find((tool) => tool.name.endsWith(name)) ?? { name: `not listed: ${name}` };

await check("initialize", () => {
  expect(client.getServerVersion()?.name === "heliograph", client.getServerVersion());
  expect(client.getServerCapabilities()?.tools?.listChanged, client.getServerCapabilities());
  expect(client.getInstructions?.() !== "", "no instructions");
});
await check("tools/list, all pages", async () => {
  const { items, count } = await pages((params) => client.listTools(params), "tools");
  tools = items;
  const names = new Set(tools.map((tool) => tool.name));
  expect(names.size === tools.length, "a name is listed twice");
  expect(tools.length >= plan.tools_min && count >= plan.pages_min, { tools: tools.length, pages: count });
});
await check("names by the view's rule; safety classes and titles arrive", () => {
  const rule = new RegExp(plan.name_rule);
  expect(tools.every((tool) => rule.test(tool.name)), tools.map((tool) => tool.name));
  const safetyClass = (tool) => tool._meta?.["io.heliograph/x-safety-class"];
  expect(tools.every(safetyClass), tools.filter((tool) => !safetyClass(tool)));
  const [named, unnamed] = [find(plan.node, plan.words.echo), find(plan.unnamed, plan.words.echo)];
  expect(safetyClass(named) === "read_only", named);
  expect(named.title === plan.title && (unnamed.title ?? null) === plan.title_of_unnamed, [named.title, unnamed.title]);
});
await check("nothing to warn of in the lists", () => expect(warnings.length === 0, warnings.slice(0, 3)));

const echo = find(plan.node, plan.words.echo);
const snapshot = find(plan.node, plan.words.snapshot);

await check("call: answered, and its structure checked", async () => {
  await client.listTools(); // the SDK checks by the last page that it has seen
  for (const [tool, args] of [[echo, { message: "hi" }], [snapshot, { include: ["load"] }]]) {
    const result = await client.callTool({ name: tool.name, arguments: { ...args, ...tool.more } });
    expect(!result.isError && result.structuredContent?.node_id === plan.node, result);
    expect(JSON.stringify(result.structuredContent) === JSON.stringify(JSON.parse(result.content[0].text)), result);
  }
});
if (plan.finds.length) {
  await check("nodes found by name, tags, state and kind, page by page", async () => {
    const tool = tools.find((tool) => tool.description?.startsWith(plan.words.find));
    for (const [filters, ids] of plan.finds) {
      const found = [];
      let page = {};
      do {
        page = await structure(tool, page.next_cursor ? { ...filters, cursor: page.next_cursor } : filters);
        found.push(...page.nodes.map((node) => node.node_id));
      } while (page.next_cursor);
      expect(JSON.stringify(found) === JSON.stringify(ids), { filters, found });
    }
  });
  await check("node looked at and called by its name", async () => {
    const seen = await look(plan.node_name);
    expect(seen.node_id === plan.node && seen.name === plan.node_name && seen.state === "live", seen);
    expect(seen.capabilities.length > 0 && (await look(plan.unnamed)).name === null, seen);
    const answer = await structure(echo, { message: "hi", node: plan.node_name });
    expect(answer.node_id === plan.node, answer);
  });
  await check("unknown node: the model reads E_MANIFEST_NOT_FOUND", async () => {
    const node = "nobody";
    await failsWith(client, find(node, plan.words.look), { node }, "E_MANIFEST_NOT_FOUND");
    await failsWith(client, echo, { message: "hi", node }, "E_MANIFEST_NOT_FOUND");
  });
}
await check("bad arguments: the model reads E_MANIFEST_INVALID", () =>
  failsWith(client, echo, { massage: "hi", ...echo.more }, "E_MANIFEST_INVALID"));
await check("subscribe tool: the model reads E_BAD_REQUEST", async () => {
  const listed = tools.some((tool) => tool.description?.startsWith(plan.words.subscribe));
  if (!listed) return;
  const subscribe = find(plan.node, plan.words.subscribe);
  await failsWith(client, subscribe, { ...subscribe.more }, "E_BAD_REQUEST");
});
await check("capability's rate limit: the model reads E_RATE_LIMITED", async () => {
  const calls = Array.from({ length: plan.flood }, () =>
    client.callTool({ name: echo.name, arguments: { message: "x", ...echo.more } }));
  const failed = (await Promise.all(calls)).filter((result) => result.isError);
  expect(failed.length > 0, "no call was refused");
  const error = JSON.parse(failed[0].content[0].text);
  expect(error.code === "E_RATE_LIMITED" && failed[0].structuredContent === undefined, error);
});
await check("unknown tool: -32602", () => refusedWith(client, { name: "nope" }, {}, -32602, "TOOL_NOT_FOUND"));
for (const [who, code, word] of [["denied", -32003, "UNAUTHORIZED"], ["slow", -32004, "RATE_LIMITED"], ["poor", -32001, "BUDGET_EXCEEDED"]]) {
  await check(`${word} by policy: ${code}`, async () => {
    const other = await connected(plan.tokens[who]);
    try {
      if (who === "slow") await other.callTool({ name: snapshot.name, arguments: snapshot.more }).catch(() => undefined);
      await refusedWith(other, snapshot, snapshot.more, code, word);
    } finally {
      await other.close();
    }
  });
}
await check("node that left: list_changed comes, and the model reads E_NODE_OFFLINE", async () => {
  const tool = find(plan.leaver, plan.words.echo);
  const changed = listChanged();
  await ask("leave");
  await changed;
  await failsWith(client, tool, { message: "hi", ...tool.more }, "E_NODE_OFFLINE");
  if (plan.tools_change) return;
  await failsWith(client, tool, { message: "hi", node: plan.leaver_name }, "E_NODE_OFFLINE");
  const seen = await look(plan.leaver_name);
  expect(seen.state === "away" && seen.left, seen);
});
await check("node that comes back: list_changed comes, and it is listed and answers again", async () => {
  const changed = listChanged();
  await ask("return");
  await changed;
  const before = tools.map((tool) => tool.name);
  tools = (await pages((params) => client.listTools(params), "tools")).items;
  const tool = find(plan.leaver, plan.words.echo);
  const answer = await structure(tool, { message: "hi", ...tool.more });
  expect(answer.node_id === plan.leaver, answer);
  expect(toolNews === 0 && JSON.stringify(before) === JSON.stringify(tools.map((tool) => tool.name)), { toolNews, before });
});
await check("resources: listed in pages, templates, read, and -32602 for an unknown one", async () => {
  const { items } = await pages((params) => client.listResources(params), "resources");
  expect(items.some((resource) => resource.uri === plan.resource), items.map((resource) => resource.uri));
  const { resourceTemplates } = await client.listResourceTemplates();
  expect(resourceTemplates.length > 0, "no template");
  const { contents } = await client.readResource({ uri: plan.resource });
  expect(JSON.parse(contents[0].text).node_id === plan.node, contents);
  const why = await client.readResource({ uri: "metrics://nobody" }).then(() => ({}), (error) => error);
  expect(why.code === -32602 && why.data?.code === "RESOURCE_NOT_FOUND", String(why));
});
await check("resource: subscribed to, and an update comes", async () => {
  const updated = next(client, types.ResourceUpdatedNotificationSchema, (told) => told.params.uri === plan.resource);
  await client.subscribeResource({ uri: plan.resource });
  await updated;
  await client.unsubscribeResource({ uri: plan.resource });
});
if (plan.finds.length) {
  await check("node looked at: it has the sample that came", async () => {
    await client.listTools(); // the page that has this tool
    const seen = await look(plan.node_name);
    expect(seen.sample?.frame, seen);
  });
}
await check("upstream's tool: answered with its structure", async () => {
  const result = await client.callTool({ name: upstream("works").name, arguments: {} });
  expect(!result.isError && result.structuredContent?.n === 1, result);
});
await check("upstream's failure: the model reads the upstream's reason", async () => {
  for (const name of ["fails", "fails_bare"]) {
    const { text } = await failure(client, upstream(name), {});
    expect(text.includes("disk 3 is full"), text);
  }
});
await check("upstream's odd schemas: listed and answered", async () => {
  for (const name of plan.odd) {
    const result = await client.callTool({ name: upstream(name).name, arguments: {} });
    expect(!result.isError && result.content[0].text.includes("odd"), result);
  }
});
await check("nothing to warn of after all that", () => expect(warnings.length === 0, warnings.slice(0, 3)));
await check("the session's end", async () => {
  await client.transport.terminateSession?.();
  await client.close();
});
say({ done: true });
process.exit(0);
