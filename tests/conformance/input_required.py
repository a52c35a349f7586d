"""Tools and a prompt that need more from the client first (SEP-2322): what they ask for, and when they are content.

Pure: parameters of a request in, result out. That `requestState` comes back as it went out is the SDK's, that seals it.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY

from tests.conformance.fixtures import form, text

Ask: TypeAlias = dict[str, Any]  # a request to the client
Asked: TypeAlias = tuple[dict[str, Ask], str | None]  # by key, and the state that must come back (None: none is kept)
_STRING = {"type": "string"}
_CAPABILITY = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


def _elicit(message: str, **fields: dict[str, Any]) -> Ask:
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": form(**fields)}}


def _sample(question: str) -> Ask:
    messages = [{"role": "user", "content": text(question)}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": 100}}


_NAME = _elicit("What is your name?", name=_STRING)
_ROOTS: Ask = {"method": "roots/list", "params": {}}
_CONFIRM = _elicit("Please confirm", ok={"type": "boolean"})
_PREFIX = "test_input_required_result_"

# What each asks for, all at once.
TOOLS: dict[str, Asked] = {
    f"{_PREFIX}elicitation": ({"user_name": _NAME}, None),
    f"{_PREFIX}sampling": ({"capital_question": _sample("What is the capital of France?")}, None),
    f"{_PREFIX}list_roots": ({"client_roots": _ROOTS}, None),
    f"{_PREFIX}request_state": ({"confirm": _CONFIRM}, "confirming"),
    f"{_PREFIX}tampered_state": ({"confirm": _CONFIRM}, "confirming"),
    f"{_PREFIX}multiple_inputs": (
        {"user_name": _NAME, "greeting": _sample("Generate a greeting"), "client_roots": _ROOTS},
        "gathering",
    ),
    "test_streaming_elicitation": ({"user_name": _NAME}, None),
}
MULTI_ROUND = f"{_PREFIX}multi_round"
BY_CAPABILITY = f"{_PREFIX}capabilities"
PROMPT = f"{_PREFIX}prompt"
_PROMPT_ASKS = {"user_context": _elicit("What context should the prompt use?", context=_STRING)}
_ROUNDS = (
    ({"step1": _elicit("Step 1: What is your name?", name=_STRING)}, "round 1"),
    ({"step2": _elicit("Step 2: What is your favorite color?", color=_STRING)}, "round 2"),
)


def tool_result(name: str, params: Mapping[str, Any], client: types.ClientCapabilities | None) -> dict[str, Any]:
    ask: Asked | None
    if name == MULTI_ROUND:
        ask = _next_round(params)
    elif name == BY_CAPABILITY:
        everything = {"user_name": _NAME, "greeting": _sample("Generate a greeting")}
        able = {key: ask for key, ask in everything.items() if _is_able(client, ask)}
        ask = None if _has_all(params, able, None) else (able, None)
    else:
        ask = None if _has_all(params, *TOOLS[name]) else TOOLS[name]
    return {"content": [text("All that was asked for has come: state-ok.")]} if ask is None else _asking(client, *ask)


def prompt_result(params: Mapping[str, Any], client: types.ClientCapabilities | None) -> dict[str, Any]:
    if not _has_all(params, _PROMPT_ASKS, None):
        return _asking(client, _PROMPT_ASKS, None)
    context = params["inputResponses"]["user_context"].get("content", {}).get("context", "")
    return {"messages": [{"role": "user", "content": text(f"Use this context: {context}")}]}


def _next_round(params: Mapping[str, Any]) -> Asked | None:
    state, (first, second) = params.get("requestState"), _ROUNDS
    if state == second[1]:
        return None if _has_all(params, *second) else second
    return second if _has_all(params, *first) else first


def _has_all(params: Mapping[str, Any], asks: Mapping[str, Ask], state: str | None) -> bool:
    responses = params.get("inputResponses") or {}
    return all(key in responses for key in asks) and (state is None or params.get("requestState") == state)


def _is_able(client: types.ClientCapabilities | None, ask: Ask) -> bool:
    return client is not None and getattr(client, _CAPABILITY[ask["method"]]) is not None


def _asking(client: types.ClientCapabilities | None, asks: dict[str, Ask], state: str | None) -> dict[str, Any]:
    missing: dict[str, Any] = {_CAPABILITY[ask["method"]]: {} for ask in asks.values() if not _is_able(client, ask)}
    if missing:
        raise missing_capability(missing)
    more = {} if state is None else {"requestState": state}
    return {"resultType": "input_required", "inputRequests": asks, **more}


def missing_capability(required: dict[str, Any]) -> MCPError:
    data = {"requiredCapabilities": required}
    return MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "The client lacks a capability", data)
