"""`tools/call` through `/mcp`, in both eras of MCP, beside the SDK's own server; and lists of a large fleet.

    python -m bench.mcp [--quick] [--rounds 7] [--seconds 2] [--callers 16] [--nodes 100]

Two tools. A *no-op* that answers by itself: ours is a gateway as in production (door, token, sessions, log) whose MCP
server has that one tool more; beside it the same tool on the SDK's low-level server, without a token, under hypercorn's
trio worker and under uvicorn (uvloop, httptools), with plain JSON answers, which cost it least. And a device's *echo*,
which only ours has: checked, made durable, sent to one of the nodes and back; once by its own name through `/mcp`, once
by its kind and a node through `/mcp/fleet`, where the node has to be found first. *Modern* calls (2026-07-28) are one
self-contained POST each; *legacy* ones (2025-11-25) go to sessions, as many as callers, opened before the clock starts.

Each server runs on one core; on the other run the nodes and the load, a C program (that of `bench.calls`) that checks
every answer. Rounds alternate between the servers, and medians count. *Calls a CPU-second* of the server process
decide. The lists are measured in processes of their own: `bench/mcp_lists.py`, `bench/mcp_views.py`.
"""

import argparse
import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.calls import (
    LOAD_CORE,
    ROOT,
    SERVER_CORE,
    WARM_UP_S,
    Gateway,
    Round,
    Server,
    Target,
    child,
    compiled_load,
    free_port,
    is_up,
    live_nodes,
    load,
    median,
    note,
    post,
    running_gateway,
    temporary_folder,
    until,
    write_calls,
)
from bench.mcp_views import print_views

FLEET_ECHO = "echo, fleet view"
OURS, ECHO, HYPERCORN, UVICORN = "heliograph", "heliograph, echo", "SDK, hypercorn", "SDK, uvicorn"
ERAS = MODERN, LEGACY = "2026-07-28", "2025-11-25"
FLEET_RATIO_MAX = 1.05  # of the CPU time of an echo through /mcp
RATIO_MIN = 0.9  # of the no-op on the SDK's server under hypercorn
CALLS_PER_SESSION = 50  # different ones; they are repeated
RESULTS = ROOT / "bench" / "results" / "mcp.json"
NOOP = "noop"
NOOP_SCHEMA = {"type": "object", "properties": {}}


# ---- the servers ---------------------------------------------------------------------------------------------------


def serve_gateway(flags: list[str]) -> None:
    """`heliograph serve`, with the tool that its MCP server does not have."""
    import mcp_types as types
    import trio
    from mcp.server.context import HandlerResult
    from mcp.server.lowlevel.server import Server as McpServer

    from gateway.main.server import running
    from gateway.main.settings import from_environment
    from gateway.main.signals import until_signalled
    from gateway.mcp.binding import Binding, Context
    from gateway.observe.log_output import log_to

    class WithNoop(Binding):
        def make_server(self) -> McpServer[Any]:
            server = super().make_server()
            ours = server.get_request_handler("tools/call")
            assert ours is not None
            call_ours = ours.handler

            async def call_tool(ctx: Context, call: types.CallToolRequestParams) -> HandlerResult:
                if call.name != NOOP:
                    return await call_ours(ctx, call)
                await trio.lowlevel.checkpoint()
                return types.CallToolResult(content=[types.TextContent(text="done")])

            server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
            return server

    names = {"--data": "data", "--http": "http.listen", "--devices": "devices.listen", "--log": "log.format"}
    given = dict(zip(flags[::2], flags[1::2], strict=True))
    settings = from_environment(None, {name: given[flag] for flag, name in names.items()})
    log_to(settings.log)

    async def run() -> None:
        async with running(settings, WithNoop):
            await until_signalled()

    trio.run(run)


def serve_sdk(under: str, port: int) -> None:
    import mcp_types as types
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel.server import Server as McpServer

    noop = types.Tool(name=NOOP, description="Does nothing.", input_schema=NOOP_SCHEMA)

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[noop])

    async def call_tool(_: ServerRequestContext[Any], call: types.CallToolRequestParams) -> types.CallToolResult:
        assert call.name == NOOP
        return types.CallToolResult(content=[types.TextContent(text="done")])

    server: McpServer[Any] = McpServer(
        "noop",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema={NOOP: NOOP_SCHEMA}.get,  # without it, each modern call lists the tools first
    )
    app = server.streamable_http_app(json_response=True)
    if under == UVICORN:
        import uvicorn

        uvicorn.run(
            app, host="127.0.0.1", port=port, loop="uvloop", http="httptools", access_log=False, log_level="warning"
        )
    else:
        import trio
        from hypercorn.config import Config
        from hypercorn.trio import serve

        config = Config()
        config.bind = [f"127.0.0.1:{port}"]
        config.errorlog = None
        config.keep_alive_max_requests = 1_000_000_000
        trio.run(serve, app, config)  # type: ignore[arg-type]


@contextmanager
def running_sdk(under: str) -> Iterator[Server]:
    port = free_port()
    with child(SERVER_CORE, "bench.mcp", "--role", "sdk", under, str(port)) as process:
        until(lambda: is_up(port), process, under)
        yield Server(process, port)


# ---- the calls -----------------------------------------------------------------------------------------------------

Headers = dict[str, str]
Tool = Callable[[int], tuple[str, dict[str, Any], str]]  # a number → name, arguments, what the answer must have


def noop(_: int) -> tuple[str, dict[str, Any], str]:
    return NOOP, {}, '"text":"done"'


def echo_of(gateway: Gateway) -> Tool:
    def echo(number: int) -> tuple[str, dict[str, Any], str]:
        node_id = gateway.node_ids[number % len(gateway.node_ids)]
        return f"sysecho.{node_id}.echo.invoke", {"message": f"hello {number}"}, f'"message":"hello {number}"'

    return echo


def fleet_echo_of(gateway: Gateway) -> Tool:
    """The same, by kind and node."""

    def echo(number: int) -> tuple[str, dict[str, Any], str]:
        node_id = gateway.node_ids[number % len(gateway.node_ids)]
        arguments = {"node": node_id, "message": f"hello {number}"}
        return "system_echo_invoke", arguments, f'"message":"hello {number}"'

    return echo


def modern_call(number: int, tool: Tool, headers: Headers, path: str) -> tuple[bytes, bytes]:
    name, arguments, wanted = tool(number)
    prefix = "io.modelcontextprotocol"
    meta = {f"{prefix}/protocolVersion": MODERN, f"{prefix}/clientCapabilities": {}}
    fields = {**headers, "MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": name}
    params = {"name": name, "arguments": arguments, "_meta": meta}
    return post(path, fields, _request(number, "tools/call", params)), wanted.encode()


def legacy_call(number: int, tool: Tool, headers: Headers, session_id: str, path: str) -> tuple[bytes, bytes]:
    name, arguments, wanted = tool(number)
    fields = {**headers, "MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": session_id}
    return post(path, fields, _request(number, "tools/call", {"name": name, "arguments": arguments})), wanted.encode()


def open_session(port: int, headers: Headers, path: str) -> str:
    """`initialize` and what follows it."""
    client = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    with _send(port, path, headers, _request(0, "initialize", client)) as answer:
        answer.read()
        session_id: str = answer.headers["Mcp-Session-Id"]
    fields = {**headers, "MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": session_id}
    _send(port, path, fields, {"jsonrpc": "2.0", "method": "notifications/initialized"}).close()
    return session_id


def _request(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def _send(port: int, path: str, headers: Headers, body: dict[str, Any]) -> Any:
    fields = {**headers, "Content-Type": "application/json"}
    return urllib.request.urlopen(
        urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), fields)
    )


# ---- the load ------------------------------------------------------------------------------------------------------

Measured = dict[str, dict[str, list[Round]]]  # by era, then by server


def measure(rounds: int, seconds: float, callers: int, nodes: int) -> Measured:
    found: Measured = {era: {name: [] for name in (OURS, HYPERCORN, UVICORN, ECHO, FLEET_ECHO)} for era in ERAS}
    # The log beside the code, because /tmp may be memory; the nodes' journals in memory.
    with temporary_folder(RESULTS.parent) as folder, temporary_folder(Path("/dev/shm")) as homes:
        program = compiled_load(folder)
        note(f"starting a gateway, the SDK's server twice and {nodes} nodes ...")
        with all_running(folder, homes, callers, nodes) as targets:
            for target in targets.values():
                load(program, target, callers, WARM_UP_S)
            for number in range(1, rounds + 1):
                note(f"round {number} of {rounds} ...")
                # There and back: what grows meanwhile, such as the log, is on nobody's side.
                for (era, name), target in list(targets.items())[:: 1 if number % 2 else -1]:
                    found[era][name].append(load(program, target, callers, seconds))
    return found


@contextmanager
def all_running(folder: Path, homes: Path, callers: int, nodes: int) -> Iterator[dict[tuple[str, str], Target]]:
    serve = ("bench.mcp", "--role", "gateway", "--")
    with (
        running_gateway(folder, homes, nodes, serve) as gateway,
        running_sdk(HYPERCORN) as hypercorn,
        running_sdk(UVICORN) as uvicorn,
        child(LOAD_CORE, "bench.calls", "--role", "nodes", str(homes), gateway.devices) as node_process,
    ):
        until(lambda: live_nodes(gateway) == nodes, node_process, "the nodes")
        accept = {"Accept": "application/json, text/event-stream"}
        with_token = {**accept, "Authorization": f"Bearer {gateway.token}"}
        sessions: dict[tuple[int, str], list[str]] = {}  # an agent may hold 32: two tools of one endpoint share theirs
        yield {
            (era, name): Target(server, write_calls(folder / f"{era} {name}", calls))
            for name, server, tool, headers, path in (
                (OURS, gateway, noop, with_token, "/mcp"),
                (HYPERCORN, hypercorn, noop, accept, "/mcp"),
                (UVICORN, uvicorn, noop, accept, "/mcp"),
                (ECHO, gateway, echo_of(gateway), with_token, "/mcp"),
                (FLEET_ECHO, gateway, fleet_echo_of(gateway), with_token, "/mcp/fleet"),
            )
            for era, calls in both_eras(server, tool, headers, callers, path, sessions).items()
        }


def both_eras(
    server: Server,
    tool: Tool,
    headers: Headers,
    callers: int,
    path: str,
    opened: dict[tuple[int, str], list[str]],
) -> dict[str, list[tuple[bytes, bytes]]]:
    """Different calls enough for all callers; those of the handshake era spread over a session each."""
    sessions = opened.setdefault((server.port, path), [])
    sessions += [open_session(server.port, headers, path) for _ in range(callers - len(sessions))]
    numbers = range(callers * CALLS_PER_SESSION)
    return {
        MODERN: [modern_call(number, tool, headers, path) for number in numbers],
        LEGACY: [legacy_call(number, tool, headers, sessions[number % callers], path) for number in numbers],
    }


def measured_lists() -> dict[str, Any]:
    note("listing the tools of 5,000 nodes ...")
    command = ["taskset", "-c", str(SERVER_CORE), sys.executable, "-m", "bench.mcp_lists"]
    listed: dict[str, Any] = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    return listed


def measured_views() -> dict[str, Any]:
    note("the fleet's view with 5 and 5,000 nodes, and a search among 20,000 ...")
    command = ["taskset", "-c", str(SERVER_CORE), sys.executable, "-m", "bench.mcp_views", "--json"]
    views: dict[str, Any] = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    return views


# ---- the run -------------------------------------------------------------------------------------------------------


def report(found: Measured, lists: dict[str, Any], views: dict[str, Any]) -> bool:
    """Print what was found and keep it; whether it is what was expected."""
    medians = {era: {name: median(rounds) for name, rounds in of.items()} for era, of in found.items()}
    ratios = {
        era: {name: of[OURS].per_cpu_s / of[name].per_cpu_s for name in (HYPERCORN, UVICORN)}
        for era, of in medians.items()
    }
    print(f"{'era':<12}{'server':<18}{'per CPU-s':>10}{'lowest':>9}{'highest':>9}", end="")
    print(f"{'per s':>9}{'p50 ms':>9}{'p99 ms':>9}{'server':>8}{'load':>6}{'ours to it':>12}")
    for era, of in medians.items():
        for name, typical in of.items():
            rates = [one.per_cpu_s for one in found[era][name]]
            print(
                f"{era:<12}{name:<18}{typical.per_cpu_s:>10,.0f}{min(rates):>9,.0f}{max(rates):>9,.0f}"
                f"{typical.per_s:>9,.0f}{typical.p50_ms:>9.2f}{typical.p99_ms:>9.2f}"
                f"{typical.server_share:>8.0%}{typical.load_share:>6.0%}"
                + (f"{ratios[era][name]:>12.2f}" if name in ratios[era] else "")
            )
    met = all(ratios[era][HYPERCORN] >= RATIO_MIN for era in ERAS)
    print(f"the no-op, expected: at least {RATIO_MIN:g} of the SDK under hypercorn, in both eras: ", end="")
    print("met" if met else "NOT MET")
    fleet = {era: of[ECHO].per_cpu_s / of[FLEET_ECHO].per_cpu_s for era, of in medians.items()}
    told = ", ".join(f"{era} {ratio:.3f}" for era, ratio in fleet.items())
    by_fleet = max(fleet.values()) <= FLEET_RATIO_MAX
    print(f"an echo by /mcp/fleet takes so much of the CPU of one by /mcp: {told}; expected: ", end="")
    print(f"at most {FLEET_RATIO_MAX:g}: {'met' if by_fleet else 'NOT MET'}")
    met = print_views(views) and by_fleet and met
    print_lists(lists)
    result = {
        "ratios": ratios,
        "medians": {era: {name: asdict(one) for name, one in of.items()} for era, of in medians.items()},
        "rounds": {era: {n: [asdict(r) for r in rs] for n, rs in of.items()} for era, of in found.items()},
        "lists": lists,
        "views": {**views, "call_ratios": fleet},
        "met": met,
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    return met


def print_lists(lists: dict[str, Any]) -> None:
    print(f"tools/list, {lists['nodes']:,} nodes, {lists['tools']:,} tools, {lists['page_items_max']} on a page:")
    print(f"{'':<34}{'CPU ms a page':>14}{'longest step ms':>17}{'pages':>7}")
    for what in lists["costs"]:
        cost = lists["costs"][what]
        print(f"{what:<34}{cost['cpu_ms_a_page']:>14.2f}{cost['longest_step_ms']:>17.2f}{cost['pages']:>7}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="3 short rounds: a first look")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--role", choices=["gateway", "sdk"], help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    match options.role:
        case "gateway":
            serve_gateway(options.rest)
        case "sdk":
            serve_sdk(options.rest[0], int(options.rest[1]))
    if options.role is not None:
        return 0
    rounds, seconds = (3, 1.0) if options.quick else (options.rounds, options.seconds)
    RESULTS.parent.mkdir(exist_ok=True)
    lists, views = measured_lists(), measured_views()
    return 0 if report(measure(rounds, seconds, options.callers, options.nodes), lists, views) else 1


if __name__ == "__main__":
    sys.exit(main())
