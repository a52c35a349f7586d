"""What the routes of echo spaces are for, as the OpenAPI document has it.

Bodies and answers are those of a room's tools, where one does the same. Which scope a route takes in a space with IAM,
`route_scopes.py` says.
"""

from dataclasses import replace
from functools import partial
from typing import Any, TypedDict

from gateway.net.error_forms import ECHO, PAGE
from gateway.net.operation import JSON, NOTHING, Answer, Credential, Operation, Operations, Schema
from gateway.spaces.documents import SpaceInfo
from gateway.spaces.iam_ceremonies import LoginWish, OptionsWish, RegistrationWish
from gateway.spaces.iam_routes import SpaceInviteWish
from gateway.spaces.room_query_rules import HINTS
from gateway.spaces.route_scopes import Need, needed
from schemas.echo.names import KEY_PATTERN, KEY_PREFIX_PATTERN, ULID_PATTERN
from schemas.echo.room_tools import ROOM_TOOLS

HTML, TEXT, PROTOBUF, ANY_TYPE = "text/html", "text/plain", "application/x-protobuf", "*/*"
_ROOM = "/api/s/{space_token}"
_ETAG = {"ETag": "The version of the value: send it as `If-Match` with a write."}
_CONDITIONS: dict[str, Schema] = {"If-Match": {"type": "string"}, "If-None-Match": {"type": "string"}}
_TOOL = ROOM_TOOLS


class SpaceForm(TypedDict, total=False):
    """As an HTML form sends it."""

    password: str
    encryption: str
    protocol: str
    ttl_seconds: str
    csrf: str


class NewSpace(SpaceInfo):
    """The claim is told once."""

    claim: str


class TtlWish(TypedDict):
    ttl_seconds: int


class KeyShown(TypedDict):
    key: str
    version: int
    size: int
    expires_at: str


class KeyPage(TypedDict):
    keys: list[KeyShown]
    next_cursor: str | None


class IamMember(TypedDict):
    member_id: str
    label: str
    scope: str
    added_at: str
    passkeys: int


class IamState(TypedDict, total=False):
    """`members` are for the scope `echo.full`."""

    enabled: bool
    members: list[IamMember]


class SpaceInvite(TypedDict):
    invite: str
    url: str
    expires_at: str


class Ceremony(TypedDict):
    """`publicKey` is for `navigator.credentials`."""

    ceremony: str
    publicKey: dict[str, Any]


class MemberTokens(TypedDict):
    access_token: str
    token_type: str
    expires_in: int
    refresh_token: str
    scope: str
    member_id: str


_names: dict[str, Schema] = {
    "space_token": {"type": "string"},
    "key": {"type": "string", "pattern": KEY_PATTERN},
    "file_id": {"type": "string", "pattern": ULID_PATTERN},
    "member_id": {"type": "string"},
}
_room = partial(Operation, tag="Spaces", form=ECHO, names=_names)
_iam = partial(Operation, tag="IAM of spaces", form=ECHO, names=_names)
_push = partial(Operation, tag="Web Push", form=ECHO, names=_names)
_page = partial(Operation, tag="Pages of spaces", form=PAGE, names=_names)
_KV_BODY = {
    JSON: {
        **(body := _TOOL["echo_kv_set"].body("key")),
        "properties": {**body["properties"], "encrypt": {"type": "boolean"}},
    },
    PROTOBUF: None,
}
_KV_WRITTEN = _TOOL["echo_kv_set"].answer

ROOM: Operations = {
    f"GET {_ROOM}": _room(
        summary="Read what a space is, and where.",
        answers={200: Answer("Its document.", SpaceInfo)},
        refuses=(401, 403, 404),
    ),
    f"PATCH {_ROOM}": _room(
        summary="Move the end of a space.",
        credentials=(Credential("claim"), Credential("room", ["echo.full"])),
        body={JSON: TtlWish},
        answers={200: Answer("Its document.", SpaceInfo)},
        refuses=(401, 403, 404, 415),
    ),
    f"DELETE {_ROOM}": _room(
        summary="End a space, and erase what is in it.",
        credentials=(Credential("claim"), Credential("room", ["echo.full"])),
        answers={204: NOTHING},
        refuses=(401, 403, 404),
    ),
    f"GET {_ROOM}/kv": _room(
        summary="List keys, in pages.",
        query={
            "prefix": {"type": "string", "pattern": KEY_PREFIX_PATTERN},
            "cursor": {"type": "string", "pattern": KEY_PATTERN},
            "limit": {"type": "integer", "minimum": 1},
        },
        answers={200: Answer("A page.", KeyPage)},
        refuses=(401, 403, 404),
    ),
    f"GET {_ROOM}/kv/{{key}}": _room(
        summary="Read a value.",
        headers={"Accept": {"type": "string"}},
        answers={200: Answer("The value.", _TOOL["echo_kv_get"].answer, headers=_ETAG, also={PROTOBUF: None})},
        refuses=(401, 403, 404, 406),
    ),
    f"POST {_ROOM}/kv/{{key}}": _room(
        summary="Write a value.",
        headers=_CONDITIONS,
        body=_KV_BODY,
        answers={
            200: Answer("Written over another.", _KV_WRITTEN, headers=_ETAG, also={PROTOBUF: None}),
            201: Answer("Written anew.", _KV_WRITTEN, headers=_ETAG, also={PROTOBUF: None}),
        },
        refuses=(401, 403, 404, 412, 415),
    ),
    f"DELETE {_ROOM}/kv/{{key}}": _room(
        summary="Delete a value.", headers=_CONDITIONS, answers={204: NOTHING}, refuses=(401, 403, 404, 412)
    ),
    f"GET {_ROOM}/files": _room(
        summary="List the files of a space.",
        answers={200: Answer("All of them.", _TOOL["echo_file_list"].answer)},
        refuses=(401, 403, 404),
    ),
    f"POST {_ROOM}/files": _room(
        summary="Upload a file.",
        body={"multipart/form-data": {"type": "object", "required": ["file"], "properties": {"file": {}}}},
        answers={201: Answer("Stored.", _TOOL["echo_file_upload"].answer)},
        refuses=(401, 403, 404, 415),
    ),
    f"GET {_ROOM}/files/{{file_id}}": _room(
        summary="Download a file, or a part of it.",
        headers={"Range": {"type": "string"}, "If-Range": {"type": "string"}},
        answers={
            200: Answer("Its bytes.", None, ANY_TYPE, {"ETag": "Its SHA-256."}),
            206: Answer("The part that `Range` asks for.", None, ANY_TYPE, {"Content-Range": "Which."}),
        },
        refuses=(401, 403, 404, 416),
    ),
    f"DELETE {_ROOM}/files/{{file_id}}": _room(
        summary="Delete a file.", answers={204: NOTHING}, refuses=(401, 403, 404)
    ),
    f"GET {_ROOM}/iam": _iam(
        summary="Ask whether a space has IAM, and who its members are.",
        credentials=(Credential(""), Credential("room", ["echo.full"])),
        answers={200: Answer("Whether it is on.", IamState)},
        refuses=(404,),
    ),
    f"DELETE {_ROOM}/iam": _iam(
        summary="Switch IAM off: its members and tokens end.", answers={204: NOTHING}, refuses=(401, 403, 404)
    ),
    f"POST {_ROOM}/iam/invites": _iam(
        summary="Invite a member.",
        body={JSON: SpaceInviteWish},
        answers={201: Answer("The invitation, once.", SpaceInvite)},
        refuses=(401, 403, 404),
    ),
    f"DELETE {_ROOM}/iam/members/{{member_id}}": _iam(
        summary="Remove a member.", answers={204: NOTHING}, refuses=(401, 403, 404, 409)
    ),
    f"POST {_ROOM}/iam/options": _iam(
        summary="Begin to make a passkey. For the gateway's own pages.",
        body={JSON: OptionsWish},
        body_is_optional=True,
        credentials=(Credential(""), Credential("room", ["echo.full"])),
        answers={200: Answer("The ceremony.", Ceremony)},
        refuses=(401, 403, 404),
    ),
    f"POST {_ROOM}/iam/members": _iam(
        summary="Become a member, or make another passkey. For the gateway's own pages.",
        body={JSON: RegistrationWish},
        credentials=(Credential("passkey_of_space"),),
        answers={201: Answer("Signed in.", MemberTokens)},
        refuses=(401, 403, 404, 409),
    ),
    f"POST {_ROOM}/iam/login/options": _iam(
        summary="Begin to sign in. For the gateway's own pages.",
        body={JSON: {"type": "object", "additionalProperties": False}},
        body_is_optional=True,
        answers={200: Answer("The ceremony.", Ceremony)},
        refuses=(401, 403, 404),
    ),
    f"POST {_ROOM}/iam/login": _iam(
        summary="Sign in with a passkey. For the gateway's own pages.",
        body={JSON: LoginWish},
        credentials=(Credential("passkey_of_space"),),
        answers={200: Answer("Signed in.", MemberTokens)},
        refuses=(401, 403, 404),
    ),
    f"GET {_ROOM}/push/vapid-public": _push(
        summary="Read the key that browsers subscribe with.",
        answers={200: Answer("The key.", _TOOL["echo_push_vapid_public"].answer)},
        refuses=(404,),
    ),
    f"POST {_ROOM}/push/subscribe": _push(
        summary="Subscribe a browser.",
        body={JSON: _TOOL["echo_push_subscribe"].body()},
        answers={
            200: Answer("Subscribed before.", _TOOL["echo_push_subscribe"].answer),
            201: Answer("Subscribed.", _TOOL["echo_push_subscribe"].answer),
        },
        refuses=(401, 403, 404, 415),
    ),
    f"POST {_ROOM}/push/unsubscribe": _push(
        summary="Unsubscribe a browser.",
        body={JSON: _TOOL["echo_push_unsubscribe"].body()},
        answers={200: Answer("Whether it was subscribed.", _TOOL["echo_push_unsubscribe"].answer)},
        refuses=(401, 403, 404, 415),
    ),
    f"POST {_ROOM}/push/notify": _push(
        summary="Notify subscribed browsers.",
        body={JSON: _TOOL["echo_push_notify"].body()},
        answers={200: Answer("How many were reached.", _TOOL["echo_push_notify"].answer)},
        refuses=(401, 403, 404, 415),
    ),
}
REST: Operations = {
    "POST /spaces": _page(
        summary="Make a space.",
        body={"application/x-www-form-urlencoded": SpaceForm},
        body_is_optional=True,
        headers={"Accept": {"type": "string"}},
        answers={
            201: Answer("Made, where `Accept` names JSON.", NewSpace),
            303: Answer("Made; to its page.", None, TEXT, {"Location": "The page, with the claim in its fragment."}),
        },
        refuses=(401, 403, 415),
    ),
    "GET /": _page(
        summary="The page on which people make spaces.",
        answers={200: Answer("A page.", None, HTML), 302: Answer("To the name of this machine.", None, TEXT)},
    ),
    "GET /s/{space_token}": _page(
        summary="The page of a room.",
        answers={200: Answer("A page.", None, HTML), 302: Answer("To the name of this machine.", None, TEXT)},
        refuses=(404,),
    ),
    "GET /s/{space_token}/prompt": _room(
        summary="Read what an agent is told of a space.", answers={200: Answer("Text.", None, TEXT)}, refuses=(404,)
    ),
    "GET /service/description": _room(
        summary="Read what this service offers, for whoever integrates it.",
        answers={200: Answer("Text.", None, "text/markdown")},
    ),
}
ENTRANCE: Operations = {
    "GET /ws/s/{space_token}": _room(
        summary="Enter a room: a WebSocket upgrade.",
        text="Subprotocols are `echo.v1.json` and `echo.v1.protobuf`; frames are in the reference of spaces.",
        query={
            name: {"type": "string"} for name in ("uid", "subs", "self", "presence", "epoch", "since", *sorted(HINTS))
        },
        answers={101: Answer("A WebSocket.", media_type=None)},
        refuses=(404, 405, 426),
    )
}


def with_scopes(operations: Operations) -> Operations:
    """With what each takes in a space with IAM; where it says so itself, it is left."""
    return {name: one if one.credentials else _with_scope(name, one) for name, one in operations.items()}


def _with_scope(name: str, operation: Operation) -> Operation:
    method, _, path = name.partition(" ")
    words = [word for word in path.removeprefix(_ROOM).split("/") if word and not word.startswith("{")]
    need = needed("/".join(words), method)
    if need is Need.NOTHING:
        return operation
    room = Credential("room", [] if isinstance(need, Need) else [need])
    return replace(operation, credentials=(Credential(""), room))
