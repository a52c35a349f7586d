# mypy: ignore-errors
# (it is run by an interpreter that has the SDK's 1.x, not the 2.x that the type checker sees)
"""A client as anybody would write one on the Python SDK 1.x: `client.mjs` once more, check by check.

Imports nothing of ours. The plan is JSON on the first line of standard input.
"""

import asyncio
import json
import logging
import re
import sys
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import httpx
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl

WARNINGS = []
SAFETY_CLASS = "io.heliograph/x-safety-class"
TOOLS_CHANGED = "notifications/tools/list_changed"


class Warned(logging.Handler):
    def emit(self, record):
        WARNINGS.append(record.getMessage())


def say(line):
    print(json.dumps(line), flush=True)


def expect(holds, why):
    if not holds:
        raise AssertionError(why)


class Checks:
    """One session's checks. Notifications end up in `heard`."""

    def __init__(self, plan):
        self.plan = plan
        self.heard = asyncio.Queue()
        self.tools = []
        self.tool_news = 0

    @asynccontextmanager
    async def connected(self, token):
        async with AsyncExitStack() as stack:
            headers = {"Authorization": f"Bearer {token}"}
            http = await stack.enter_async_context(httpx.AsyncClient(headers=headers, timeout=60))
            read, write, _ = await stack.enter_async_context(streamable_http_client(self.plan["url"], http_client=http))
            session = await stack.enter_async_context(ClientSession(read, write, message_handler=self.hear))
            self.initialized = await session.initialize()
            yield session

    async def hear(self, message):
        if isinstance(message, Exception):
            WARNINGS.append(repr(message))
        elif hasattr(message, "root"):
            self.tool_news += message.root.method == TOOLS_CHANGED
            await self.heard.put(message.root)

    async def next(self, method, uri=None):
        async with asyncio.timeout(self.plan["patience_ms"] / 1000):
            while True:
                told = await self.heard.get()
                if told.method == method and (uri is None or str(told.params.uri) == uri):
                    return

    async def ask(self, what):
        say({"ask": what})
        await asyncio.to_thread(sys.stdin.readline)

    async def check(self, name, run):
        try:
            await run()
        except Exception as error:
            say({"check": name, "problem": repr(error)[:2000]})
        else:
            say({"check": name, "problem": None})

    async def pages(self, listing, what):
        items, count, cursor = [], 0, None
        while count == 0 or cursor is not None:
            page = await listing(cursor)
            items, count, cursor = items + getattr(page, what), count + 1, page.nextCursor
        return items, count

    def described(self, words):
        return [tool for tool in self.tools if (tool.description or "").startswith(words)]

    def find(self, node, words):
        tool = self.find_tool(node, words)
        return tool.name, {} if node in tool.name else {"node": node}

    def find_tool(self, node, words):
        mine = self.described(words)
        own = [tool for tool in mine if node in tool.name]
        shared = [tool for tool in mine if "node" in tool.inputSchema.get("properties", {})]
        expect(own or shared, f"no tool for {words}")
        return (own or shared)[0]

    async def structure(self, name, arguments):
        result = await self.session.call_tool(name, arguments)
        expect(not result.isError and result.structuredContent, result)
        return result.structuredContent

    async def look(self, node):
        return await self.structure(*self.find(node, self.plan["words"]["look"]))

    def upstream(self, name):
        return next(tool.name for tool in self.tools if tool.name.endswith(name))

    async def failure(self, name, arguments):
        result = await self.session.call_tool(name, arguments)
        expect(result.isError and result.structuredContent is None, result)
        return result.content[0].text, result.meta

    async def fails_with(self, tool, arguments, code):
        name, more = tool
        text, meta = await self.failure(name, {**arguments, **more})
        error = json.loads(text)
        expect(error["code"] == code and error["suggested_fix"] and error["correlation_id"], text)
        expect(meta["io.heliograph/error"] == error, meta)

    async def refused_with(self, session, name, arguments, code, word):
        try:
            result = await session.call_tool(name, arguments)
        except McpError as error:
            expect((error.error.code, error.error.data["code"]) == (code, word), error.error)
        else:
            raise AssertionError(result)

    # ---- the checks -------------------------------------------------------------------------------------------------

    async def run(self):
        async with self.connected(self.plan["tokens"]["all"]) as self.session:
            await self.check("initialize", self.initialize)
            await self.check("tools/list, all pages", self.list_tools)
            await self.check("names by the view's rule; safety classes and titles arrive", self.labels)
            words, is_fleet = self.plan["words"], bool(self.plan["finds"])
            self.echo = self.find(self.plan["node"], words["echo"])
            self.snapshot = self.find(self.plan["node"], words["snapshot"])
            await self.check("call: answered, and its structure checked", self.answered)
            if is_fleet:
                await self.check("nodes found by name, tags, state and kind, page by page", self.nodes_found)
                await self.check("node looked at and called by its name", self.node_by_name)
                await self.check("unknown node: the model reads E_MANIFEST_NOT_FOUND", self.unknown_node)
            await self.check(
                "bad arguments: the model reads E_MANIFEST_INVALID",
                lambda: self.fails_with(self.echo, {"massage": "hi"}, "E_MANIFEST_INVALID"),
            )
            await self.check("subscribe tool: the model reads E_BAD_REQUEST", self.subscribe_tool)
            await self.check("capability's rate limit: the model reads E_RATE_LIMITED", self.flood)
            await self.check(
                "unknown tool: -32602",
                lambda: self.refused_with(self.session, "nope", {}, -32602, "TOOL_NOT_FOUND"),
            )
            for who, code, word in (
                ("denied", -32003, "UNAUTHORIZED"),
                ("slow", -32004, "RATE_LIMITED"),
                ("poor", -32001, "BUDGET_EXCEEDED"),
            ):
                await self.check(f"{word} by policy: {code}", lambda: self.refused(who, code, word))  # noqa: B023
            await self.check(
                "node that left: list_changed comes, and the model reads E_NODE_OFFLINE", self.node_that_left
            )
            await self.check(
                "node that comes back: list_changed comes, and it is listed and answers again", self.node_is_back
            )
            await self.check(
                "resources: listed in pages, templates, read, and -32602 for an unknown one", self.resources
            )
            await self.check("resource: subscribed to, and an update comes", self.subscribed)
            if is_fleet:
                await self.check("node looked at: it has the sample that came", self.node_has_sample)
            await self.check("upstream's tool: answered with its structure", self.upstream_works)
            await self.check("upstream's failure: the model reads the upstream's reason", self.upstream_fails)
            await self.check("upstream's odd schemas: listed and answered", self.upstream_is_odd)
            await self.check("nothing to warn of after all that", self.no_warnings)
        say({"done": True})

    async def initialize(self):
        expect(self.initialized.serverInfo.name == "heliograph", self.initialized)
        expect(self.initialized.capabilities.tools.listChanged, self.initialized)

    async def list_tools(self):
        self.tools, count = await self.pages(lambda cursor: self.session.list_tools(cursor), "tools")
        expect(len({tool.name for tool in self.tools}) == len(self.tools), "a name is listed twice")
        told = (len(self.tools), count)
        expect(told[0] >= self.plan["tools_min"] and told[1] >= self.plan["pages_min"], told)

    async def labels(self):
        names = [tool.name for tool in self.tools]
        expect(all(re.fullmatch(self.plan["name_rule"], name) for name in names), names)
        expect(all((tool.meta or {}).get(SAFETY_CLASS) for tool in self.tools), self.tools)
        named, unnamed = (self.find_tool(self.plan[who], self.plan["words"]["echo"]) for who in ("node", "unnamed"))
        expect(named.meta[SAFETY_CLASS] == "read_only", named)
        titles = (named.title, unnamed.title)
        expect(titles == (self.plan["title"], self.plan["title_of_unnamed"]), titles)

    async def answered(self):
        for (name, more), arguments in ((self.echo, {"message": "hi"}), (self.snapshot, {"include": ["load"]})):
            result = await self.session.call_tool(name, {**arguments, **more})
            expect(not result.isError and result.structuredContent["node_id"] == self.plan["node"], result)
            expect(json.loads(result.content[0].text) == result.structuredContent, result)

    async def nodes_found(self):
        (tool,) = self.described(self.plan["words"]["find"])
        for filters, ids in self.plan["finds"]:
            page = await self.structure(tool.name, filters)
            found = list(page["nodes"])
            while "next_cursor" in page:
                page = await self.structure(tool.name, {**filters, "cursor": page["next_cursor"]})
                found += page["nodes"]
            expect([node["node_id"] for node in found] == ids, (filters, found))

    async def node_by_name(self):
        node, name = self.plan["node"], self.plan["node_name"]
        seen = await self.look(name)
        expect((seen["node_id"], seen["name"], seen["state"]) == (node, name, "live"), seen)
        expect(seen["capabilities"] and (await self.look(self.plan["unnamed"]))["name"] is None, seen)
        answer = await self.structure(self.echo[0], {"message": "hi", "node": name})
        expect(answer["node_id"] == node, answer)

    async def unknown_node(self):
        words = self.plan["words"]
        await self.fails_with(self.find("nobody", words["look"]), {}, "E_MANIFEST_NOT_FOUND")
        await self.fails_with(self.find("nobody", words["echo"]), {"message": "hi"}, "E_MANIFEST_NOT_FOUND")

    async def node_has_sample(self):
        seen = await self.look(self.plan["node_name"])
        expect(seen["sample"]["frame"], seen)

    async def subscribe_tool(self):
        words = self.plan["words"]["subscribe"]
        if any((tool.description or "").startswith(words) for tool in self.tools):
            await self.fails_with(self.find(self.plan["node"], words), {}, "E_BAD_REQUEST")

    async def flood(self):
        name, more = self.echo
        calls = (self.session.call_tool(name, {"message": "x", **more}) for _ in range(self.plan["flood"]))
        failed = [result for result in await asyncio.gather(*calls) if result.isError]
        expect(failed, "no call was refused")
        expect(json.loads(failed[0].content[0].text)["code"] == "E_RATE_LIMITED", failed[0])

    async def refused(self, who, code, word):
        name, more = self.snapshot
        async with self.connected(self.plan["tokens"][who]) as other:
            if who == "slow":
                with suppress(McpError):
                    await other.call_tool(name, more)
            await self.refused_with(other, name, more, code, word)

    async def node_that_left(self):
        tool = self.find(self.plan["leaver"], self.plan["words"]["echo"])
        await self.ask("leave")
        await self.list_changed()
        await self.fails_with(tool, {"message": "hi"}, "E_NODE_OFFLINE")
        if not self.plan["tools_change"]:
            name = self.plan["leaver_name"]
            await self.fails_with((tool[0], {"node": name}), {"message": "hi"}, "E_NODE_OFFLINE")
            seen = await self.look(name)
            expect(seen["state"] == "away" and seen["left"], seen)

    async def node_is_back(self):
        await self.ask("return")
        await self.list_changed()
        before = [tool.name for tool in self.tools]
        await self.list_tools()
        name, more = self.find(self.plan["leaver"], self.plan["words"]["echo"])
        answer = await self.structure(name, {"message": "hi", **more})
        expect(answer["node_id"] == self.plan["leaver"], answer)
        expect([tool.name for tool in self.tools] == before, before)
        expect(self.plan["tools_change"] or not self.tool_news, "news of tools that stay")

    async def list_changed(self):
        """What comes when a node does: on a view whose tools stay, only the list of resources changes."""
        await self.next(TOOLS_CHANGED if self.plan["tools_change"] else "notifications/resources/list_changed")

    async def resources(self):
        items, _ = await self.pages(lambda cursor: self.session.list_resources(cursor), "resources")
        expect(self.plan["resource"] in {str(item.uri) for item in items}, items)
        expect((await self.session.list_resource_templates()).resourceTemplates, "no template")
        (content,) = (await self.session.read_resource(AnyUrl(self.plan["resource"]))).contents
        expect(json.loads(content.text)["node_id"] == self.plan["node"], content)
        try:
            await self.session.read_resource(AnyUrl("metrics://nobody"))
        except McpError as error:
            expect((error.error.code, error.error.data["code"]) == (-32602, "RESOURCE_NOT_FOUND"), error.error)
        else:
            raise AssertionError("it was read")

    async def subscribed(self):
        uri = AnyUrl(self.plan["resource"])
        await self.session.subscribe_resource(uri)
        await self.next("notifications/resources/updated", self.plan["resource"])
        await self.session.unsubscribe_resource(uri)

    async def upstream_works(self):
        result = await self.session.call_tool(self.upstream("works"), {})
        expect(not result.isError and result.structuredContent == {"n": 1}, result)

    async def upstream_fails(self):
        for name in ("fails", "fails_bare"):
            text, _ = await self.failure(self.upstream(name), {})
            expect("disk 3 is full" in text, text)

    async def upstream_is_odd(self):
        for name in self.plan["odd"]:
            result = await self.session.call_tool(self.upstream(name), {})
            expect(not result.isError and "odd" in result.content[0].text, (name, result))

    async def no_warnings(self):
        expect(not WARNINGS, WARNINGS[:3])


def main():
    logging.getLogger().addHandler(Warned(logging.WARNING))
    asyncio.run(Checks(json.loads(sys.stdin.readline())).run())


if __name__ == "__main__":
    main()
