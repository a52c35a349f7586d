"""What `/join` is for, as the OpenAPI document has it."""

from functools import partial
from typing import Any, TypedDict

from gateway.identity.members.join_routes import JOIN, OPTIONS, JoinOptionsWish, JoinWish
from gateway.net.error_forms import ECHO
from gateway.net.operation import JSON, Answer, Credential, Operation, Operations


class JoinCeremony(TypedDict):
    ceremony: str
    publicKey: dict[str, Any]
    tenant: str
    label: str
    scopes: list[str]
    expires_at: str


class JoinedMember(TypedDict):
    tenant: str
    label: str
    scopes: list[str]
    mcp_url: str


_join = partial(Operation, tag="Members of tenants", form=ECHO)

JOINING: Operations = {
    f"GET {JOIN}": _join(
        summary="The page on which somebody who was invited makes a passkey.",
        answers={
            200: Answer("A page.", None, "text/html"),
            302: Answer("To the name of this machine.", None, "text/plain"),
        },
    ),
    f"POST {OPTIONS}": _join(
        summary="Begin to make a passkey. For the gateway's own page.",
        body={JSON: JoinOptionsWish},
        answers={200: Answer("The ceremony.", JoinCeremony)},
        refuses=(401, 403, 415),
    ),
    f"POST {JOIN}": _join(
        summary="Become a member. For the gateway's own page.",
        credentials=(Credential("passkey_of_join"),),
        body={JSON: JoinWish},
        answers={201: Answer("Who that is now.", JoinedMember)},
        refuses=(401, 403, 415),
    ),
}
