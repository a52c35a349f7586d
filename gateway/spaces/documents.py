"""What is told of a space, its files and the service: JSON documents, the prompt, the description. Pure but for `base`.

The texts are in the files beside this one, with a place for each value of this instance; all values are our own.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from string import Template
from typing import NotRequired, TypeAlias, TypedDict

from actors.space.events import Space
from actors.space.store import StoredFile
from gateway.spaces.settings import EchoSettings
from schemas.echo.envelope import room_key, shown_key
from schemas.echo.times import rfc3339

_FOLDER = Path(__file__).parent
_PROMPT = Template((_FOLDER / "prompt.txt").read_text())
_DESCRIPTION = Template((_FOLDER / "description.md").read_text())
_MCP = Template((_FOLDER / "description_mcp.md").read_text().rstrip())
_NO_MCP = "MCP is switched off on this instance: `/mcp` answers 503 `mcp_disabled`."
_SIGN_IN = Template(
    "In a space with\n"
    "IAM, send an access token of a member (`ea_…`) instead. A client that has none learns from the 401 where members\n"
    "sign in with a passkey: `resource_metadata` names the authorization server, `$base/oauth`. `tools/list` shows\n"
    "what the scopes allow."
)
_NO_SIGN_IN = "OAuth and\npasskeys are not offered on this instance."
_PUSH_TOOLS = "the bodies of these routes, as Web Push below has them"
_NO_PUSH_TOOLS = "`push_not_configured`: this instance does not offer Web Push"
_PUSH = Template(
    "  GET    $base/api/s/$token/push/vapid-public\n"
    "  POST   $base/api/s/$token/push/subscribe     (a browser's PushSubscription)\n"
    "  POST   $base/api/s/$token/push/unsubscribe\n"
    "  POST   $base/api/s/$token/push/notify\n"
    "\n"
    'Push: notify with {"title": "...", "body": "...", "data": any, "sub": "lobby", "tuid": "ada"}; the last three\n'
    "are optional. It reaches people whose browsers have subscribed, also when none of their pages is open.\n"
    'Subscribe with {"subscription": {...}, "uid": "ada", "subs": ["lobby"]}.\n'
)
_PLAIN = "Encryption is off: values and messages are readable by the operator of this service."
_ENCRYPTED = Template(
    "Encryption is on: values and message data must be JWE compact strings (alg dir, enc A256GCM, random 96-bit IV).\n"
    "encryption_key (base64url, 32 bytes): $key\n"
    'kid is "room#kv/<key>" for a value and "room#ws" for a message; compare it with the place where you found it.\n'
    'Without cryptography of your own, write {"value": "...", "encrypt": true}: the service seals it, and reading\n'
    "yields the envelope. A kid that begins with x: names a key that only the clients have."
)
_KEY_ELSEWHERE = "as encryption_key in the document of this room, for members"
_MEMBERS = "Members who have the token below"
_HOLDERS = "Anyone who has the token below"
_IAM_OFF = "IAM is off: the token is all that is needed, and there is nowhere to sign in."
_IAM_ON = Template(
    "IAM is on: REST also needs the header Authorization: Bearer with an access token of this room (ea_...). So\n"
    "does the WebSocket, or, as its first frame within 5 seconds,\n"
    '  {"type":"auth","access_token":"ea_..."}\n'
    "Sent again, with a new token, it keeps the socket open. Members sign in at $base/s/$token. Without a valid\n"
    "access token the answer is 401 or close 4401, without the scope 403, close 4403 or insufficient_scope."
)


AppPromptOf: TypeAlias = Callable[[str], str | None]  # by a project's id, its own text


def no_app_prompt(_project_id: str) -> str | None:
    return None


def app_prompt(text: str | None) -> str:
    """A project's own text as it follows the room's; that it cannot end that part, its rules have seen to."""
    return f"<APP_PROMPT>\n{text}\n</APP_PROMPT>\n" if text else ""


class Rest(TypedDict):
    kv: str
    files: str
    push: str


class SpaceInfo(TypedDict):
    token: str
    space_id: str
    expires_at: str
    protocol: str
    encryption_enabled: bool
    encryption_key: NotRequired[str]
    iam_enabled: bool
    websocket_url: str
    rest: Rest
    dashboard_url: str
    prompt_url: str


class FileDocument(TypedDict):
    file_id: str
    name: str
    content_type: str
    size: int
    sha256: str
    created_at: str
    expires_at: str
    url: str


class Documents:
    def __init__(
        self,
        settings: EchoSettings,
        base: Callable[[], str],
        app_prompt_of: AppPromptOf = no_app_prompt,
        sections: Sequence[Callable[[], str]] = (),
        *,
        has_mcp: bool = True,
        has_sign_in: bool = False,
        has_push: bool = False,
    ) -> None:
        """`sections` are what other features have to say in the description, as markdown with headings."""
        self._settings = settings
        self._sections = sections
        self._base = base
        self._app_prompt_of = app_prompt_of
        self._has_push = has_push
        self._has_mcp = has_mcp
        self._has_sign_in = has_sign_in

    def info(self, space: Space, token: str) -> SpaceInfo:
        """For whoever has the token: it is repeated in it."""
        base = self._base()
        api = f"{base}/api/s/{token}"
        document = SpaceInfo(
            token=token,
            space_id=space.space_id,
            expires_at=rfc3339(space.ends_at_ms),
            protocol=space.protocol,
            encryption_enabled=space.is_encrypted,
            iam_enabled=space.has_iam,
            websocket_url=f"ws{base.removeprefix('http')}/ws/s/{token}",
            rest=Rest(kv=f"{api}/kv", files=f"{api}/files", push=f"{api}/push"),
            dashboard_url=f"{base}/s/{token}",
            prompt_url=f"{base}/s/{token}/prompt",
        )
        if space.is_encrypted:
            document["encryption_key"] = shown_key(room_key(token, space.space_id))
        return document

    def file(self, file: StoredFile, space: Space, token: str) -> FileDocument:
        return FileDocument(
            file_id=file.file_id,
            name=file.name,
            content_type=file.content_type,
            size=file.size,
            sha256=file.sha256,
            created_at=rfc3339(file.created_at_ms),
            expires_at=rfc3339(space.ends_at_ms),
            url=f"{self._base()}/api/s/{token}/files/{file.file_id}",
        )

    def files(self, files: Iterable[StoredFile], space: Space, token: str) -> dict[str, list[FileDocument]]:
        return {"files": [self.file(file, space, token) for file in files]}

    def prompt(self, space: Space, token: str) -> str:
        """For whoever has the token, also where that is not enough to get in: then without the key.

        In a project's room, the project's own text follows.
        """
        info = self.info(space, token)
        encryption = _PLAIN
        if space.is_encrypted:
            encryption = _ENCRYPTED.substitute(key=_KEY_ELSEWHERE if space.has_iam else info["encryption_key"])
        own = None if space.project_id is None else self._app_prompt_of(space.project_id)
        prompt = _PROMPT.substitute(
            self._values(),
            token=token,
            space_id=space.space_id,
            expires_at=info["expires_at"],
            protocol=space.protocol,
            websocket_url=info["websocket_url"],
            encryption=encryption,
            push=_PUSH.substitute(base=self._base(), token=token) if self._has_push else "",
            users=_MEMBERS if space.has_iam else _HOLDERS,
            iam=_IAM_ON.substitute(base=self._base(), token=token) if space.has_iam else _IAM_OFF,
        )
        return prompt + app_prompt(own)

    def description(self) -> str:
        values = self._values()
        sign_in = _SIGN_IN.substitute(values) if self._has_sign_in else _NO_SIGN_IN
        push_tools = _PUSH_TOOLS if self._has_push else _NO_PUSH_TOOLS
        mcp = _MCP.substitute(values, sign_in=sign_in, push=push_tools) if self._has_mcp else _NO_MCP
        sections = "".join(f"\n{section().strip()}\n" for section in self._sections)
        return _DESCRIPTION.substitute(values, mcp=mcp, sections=sections)

    def _values(self) -> dict[str, object]:
        settings = self._settings
        names = (
            "room_ttl_s", "value_bytes_max", "body_bytes_max", "keys_max", "kv_bytes_max", "file_bytes_max",
            "files_bytes_max", "files_max", "message_bytes_max", "connections_max", "frames_per_s_max", "csrf",
            "service_name", "mcp_file_bytes",
        )  # fmt: skip
        return {"base": self._base(), **{name: getattr(settings, name) for name in names}}
