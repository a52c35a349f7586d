"""What the routes of this package are for, as the OpenAPI document has it: those for agents and for everybody."""

from functools import partial
from typing import Any, Literal, NotRequired, TypedDict

from gateway.api.pages import LIMIT_SCHEMA, NODE_ID_SCHEMA, PAGE_OF_NODES
from gateway.identity.tokens import OperatorScope
from gateway.net.error_forms import DEVICE
from gateway.net.operation import JSON, Answer, Credential, Operation, Operations, Published

AGENT, OPERATOR = "agent", "operator"  # schemes
RATES = {
    "RateLimit": "What is left of the agent's rates for this tool, where there are any (an IETF draft).",
    "RateLimit-Policy": "Those rates: `q` calls in `w` seconds.",
}
CORRELATION = {"X-Correlation-Id": "The id of this call in the log and the audit."}
ETAG = {"ETag": "Send it as `If-None-Match`; the answer is 304 while nothing has changed."}
UNCHANGED = Answer("Not changed since the `If-None-Match`.", media_type=None)
IF_NONE_MATCH = {"If-None-Match": {"type": "string"}}

_open = partial(Operation, tag="Gateway", form=DEVICE)
_agents = partial(
    Operation, tag="Agents", form=DEVICE, credentials=(Credential(AGENT),), names={"node_id": NODE_ID_SCHEMA}
)


class ToolCall(TypedDict):
    tool: str
    arguments: dict[str, Any]


class ListedTool(TypedDict):
    """As MCP lists it."""

    name: str
    title: NotRequired[str]
    description: NotRequired[str]
    inputSchema: dict[str, Any]


class ToolPage(TypedDict):
    tools: list[ListedTool]
    nextCursor: NotRequired[str]


class DeviceShown(TypedDict):
    node_id: str
    manifest_etag: str
    live: bool


class DevicePage(TypedDict):
    devices: list[DeviceShown]
    nextCursor: NotRequired[str]


class RateStanding(TypedDict):
    name: str
    cap: int
    per_s: int
    used: int
    remaining: int
    reset_s: int
    retry_after_ms: int | None


class BudgetStanding(TypedDict):
    """Dollars with two decimals, each beside its whole micro-dollars. `cap` is null where nothing is counted."""

    agent: str
    tenant: str
    policy: str | None
    cap: str | None
    cap_micros: NotRequired[int]
    used: NotRequired[str]
    used_micros: NotRequired[int]
    reserved: NotRequired[str]
    reserved_micros: NotRequired[int]
    left: NotRequired[str]
    left_micros: NotRequired[int]
    period_s: NotRequired[int | None]
    resets_at: NotRequired[str | None]
    price: NotRequired[str]
    price_micros: NotRequired[int]
    rates: list[RateStanding]


class SchemaShown(TypedDict):
    id: str
    uri: str
    content_hash: str


class SchemaList(TypedDict):
    schemas: list[SchemaShown]


class TokenKeySet(TypedDict):
    """RFC 7517."""

    keys: list[dict[str, str]]


class Health(TypedDict):
    status: Literal["ok"]
    service: str


class Readiness(TypedDict):
    status: Literal["ready"]


AGENTS: Operations = {
    "POST /mcp/tools/call": _agents(
        summary="Call a tool.",
        text="The result is the body itself. A `subscribe` answers with an event stream: `Accept` has to name it.",
        body={JSON: ToolCall},
        headers={"Accept": {"type": "string"}, "traceparent": {"type": "string"}},
        answers={
            200: Answer(
                "The tool's result, as its `outputSchema` has it; or events, by the stream reference.",
                {},
                headers={**CORRELATION, **RATES},
                also={"text/event-stream": None},
            )
        },
        refuses=(401, 403, 404, 429, 500, 504),
    ),
    "GET /mcp/tools": _agents(
        summary="List the tools that the token may call, in pages.",
        query={"limit": LIMIT_SCHEMA, "cursor": {"type": "string"}},
        answers={200: Answer("A page.", ToolPage)},
        refuses=(401,),
    ),
    "GET /mcp/budget": _agents(
        summary="Read what the calling agent has left.",
        answers={200: Answer("Its budget, price and rates.", BudgetStanding)},
        refuses=(401, 403, 500),
    ),
    "GET /devices": _agents(
        summary="List the nodes of the token's tenant, in pages.",
        query=PAGE_OF_NODES,
        answers={200: Answer("A page.", DevicePage)},
        refuses=(401,),
    ),
    "GET /devices/{node_id}/manifest": _agents(
        summary="Read the last manifest that was accepted from a node.",
        headers=IF_NONE_MATCH,
        answers={200: Answer("The manifest.", Published("manifest@1.0.0"), headers=ETAG), 304: UNCHANGED},
        refuses=(401, 404),
    ),
}
EVERYBODY: Operations = {
    "GET /schemas/": _open(summary="List the published schemas.", answers={200: Answer("All ids.", SchemaList)}),
    "GET /schemas/{schema_id}": _open(
        summary="Read a published schema. It never changes.",
        names={"schema_id": {"type": "string"}},
        headers=IF_NONE_MATCH,
        answers={200: Answer("The schema.", {}, "application/schema+json", ETAG), 304: UNCHANGED},
        refuses=(404,),
    ),
    "GET /.well-known/jwks.json": _open(
        summary="Read the public keys of tokens.", answers={200: Answer("A key set.", TokenKeySet)}
    ),
    "GET /healthz": _open(summary="Ask whether the process runs.", answers={200: Answer("It does.", Health)}),
    "GET /readyz": _open(
        summary="Ask whether the gateway can serve.", answers={200: Answer("It can; else 503.", Readiness)}
    ),
}


def metrics_operations(*, is_open: bool) -> Operations:
    return {
        "GET /metrics": _open(
            summary="Read the page for Prometheus.",
            tag="Operators",
            credentials=() if is_open else (Credential(OPERATOR, [OperatorScope.FLEET_READ.value]),),
            answers={200: Answer("The page.", None, "text/plain")},
            refuses=() if is_open else (401, 403),
        )
    }
