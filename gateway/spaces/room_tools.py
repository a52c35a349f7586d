"""The tools of a room: what each does, by the same values, files and documents that REST has. No rule is here twice.

Who calls, how often and what is written down of it is for `mcp_sessions.py`; which tools there are and what they take,
`schemas/echo/room_tools.json` says. Web Push is brought by another feature (`room_push.py`).
"""

import binascii
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from actors.grants.grants import Access
from actors.space.events import Space
from actors.space.space_files import SpaceFiles
from actors.space.space_values import SpaceValues
from actors.space.store import StoredFile
from gateway.calls.echo_calls import Arguments, Failure, Outcome
from gateway.main.session_kind import LargeShare
from gateway.net.echo_answers import Refusal
from gateway.net.exchange import BODY_BYTES_MAX
from gateway.spaces.documents import Documents
from gateway.spaces.file_content_rules import DEFAULT_NAME, file_name, stored_type
from gateway.spaces.room_push import PushTool, RoomPush
from gateway.spaces.settings import EchoSettings
from gateway.spaces.upload_shares import SHARE_AGAIN_MS, UploadShares
from schemas.echo.errors import EchoError
from schemas.echo.kv import entry_document, read_write
from schemas.echo.room_tools import FULL

PIECE_BYTES = 64 * 1024  # of a file at once, in and out
SHOW_TOKEN = frozenset(
    {"echo_space_info", "echo_system_prompt", "echo_file_list", "echo_file_download", "echo_file_upload"}
)  # tools whose documents have the room's token in them, if only in an address
_PIECE_CHARS = 65_536  # of base64, a multiple of four


@dataclass(frozen=True, slots=True)
class RoomCaller:
    """Who has the token of a room, which opens everything, or an access token of a member of it; at an address."""

    space: Space
    token: str = field(repr=False)  # the room's; of a member's request, empty until a tool is called
    address: str
    scopes: frozenset[str] = frozenset({FULL})
    access: Access | None = None  # a member's
    opened_until_ms: int = 0  # of a member's grant

    @property
    def credential_id(self) -> str:
        if self.access is None:
            return credential_of(self.space.space_id)
        return credential_of_grant(self.space.space_id, self.access.grant_id)

    @property
    def accounts(self) -> tuple[str, str]:
        return self.space.space_id, self.address

    @property
    def expires_at_ms(self) -> int:
        return self.space.ends_at_ms if self.access is None else self.opened_until_ms


def credential_of_grant(space_id: str, grant_id: str) -> str:
    """The name of what a member was granted: every access token of it is the same credential."""
    return f"space:{space_id}/{grant_id}"


def credential_of(space_id: str) -> str:
    """The name of a room's token."""
    return f"space:{space_id}"


Tool: TypeAlias = Callable[[RoomCaller, Arguments, LargeShare], Awaitable[Outcome]]


class RoomTools:
    def __init__(
        self,
        values: SpaceValues,
        files: SpaceFiles,
        documents: Documents,
        shares: UploadShares,
        settings: EchoSettings,
        push: RoomPush,
    ) -> None:
        self._values = values
        self._files = files
        self._documents = documents
        self._shares = shares
        self._file_bytes_max = settings.mcp_file_bytes
        self.by_name: Mapping[str, Tool] = {
            "echo_space_info": self._space_info,
            "echo_system_prompt": self._system_prompt,
            "echo_kv_get": self._kv_get,
            "echo_kv_set": self._kv_set,
            "echo_file_list": self._file_list,
            "echo_file_download": self._file_download,
            "echo_file_upload": self._file_upload,
            **{name: _by_member(call) for name, call in push.tools.items()},
        }

    async def _space_info(self, caller: RoomCaller, _: Arguments, __: LargeShare) -> Outcome:
        return self._documents.info(caller.space, caller.token)

    async def _system_prompt(self, caller: RoomCaller, _: Arguments, __: LargeShare) -> Outcome:
        return {"prompt": self._documents.prompt(caller.space, caller.token)}

    # ---- values ------------------------------------------------------------------------------------------------------

    async def _kv_get(self, caller: RoomCaller, arguments: Arguments, _: LargeShare) -> Outcome:
        if caller.space.is_encrypted:
            return EchoError.ENCRYPTED_ROOM
        entry = await self._values.get(caller.space, arguments["key"])
        return entry if isinstance(entry, EchoError) else entry_document(entry)

    async def _kv_set(self, caller: RoomCaller, arguments: Arguments, _: LargeShare) -> Outcome:
        if caller.space.is_encrypted:
            return EchoError.ENCRYPTED_ROOM
        write = read_write({name: value for name, value in arguments.items() if name != "key"})
        if isinstance(write, EchoError):
            return write
        put = await self._values.put(caller.space, caller.token, arguments["key"], write)
        return put if isinstance(put, EchoError) else entry_document(put.entry)

    # ---- files -------------------------------------------------------------------------------------------------------

    async def _file_list(self, caller: RoomCaller, _: Arguments, __: LargeShare) -> Outcome:
        files = await self._files.list(caller.space)
        return files if isinstance(files, EchoError) else self._documents.files(files, caller.space, caller.token)

    async def _file_download(self, caller: RoomCaller, arguments: Arguments, share: LargeShare) -> Outcome:
        file = await self._files.find(caller.space, arguments["file_id"])
        if isinstance(file, EchoError):
            return file
        document = self._documents.file(file, caller.space, caller.token)
        if file.size > self._file_bytes_max:
            return Failure(EchoError.PAYLOAD_TOO_LARGE, more={"url": document["url"]})
        if file.size > BODY_BYTES_MAX and not share.take():
            return EchoError.OVERLOADED
        content = bytearray()
        while len(content) < file.size:
            length = min(PIECE_BYTES, file.size - len(content))
            piece = await self._files.read(caller.space, file.file_id, len(content), length)
            if piece is None:
                return EchoError.FILE_NOT_FOUND
            content += piece
        return {**document, "data_base64": b64encode(content).decode()}

    async def _file_upload(self, caller: RoomCaller, arguments: Arguments, _: LargeShare) -> Outcome:
        with self._shares.take(caller.address, caller.space.space_id) as is_free:
            if not is_free:
                return Failure(EchoError.RATE_LIMITED, SHARE_AGAIN_MS)
            stored = await self._take(caller.space, arguments)
        return stored if isinstance(stored, EchoError) else self._documents.file(stored, caller.space, caller.token)

    async def _take(self, space: Space, arguments: Arguments) -> StoredFile | EchoError:
        """Whatever ends this early leaves nothing of the file."""
        data: str = arguments["data_base64"]
        if len(data) // 4 * 3 - data[-2:].count("=") > self._file_bytes_max:
            return EchoError.PAYLOAD_TOO_LARGE
        name, kind = file_name(arguments.get("name", DEFAULT_NAME)), stored_type(arguments.get("content_type"))
        begun = await self._files.begin(space, name, kind)
        if isinstance(begun, EchoError):
            return begun
        async with begun as coming:
            for piece in _decoded(data):
                if piece is None:
                    return EchoError.INVALID_PAYLOAD
                fault = await coming.append(piece)
                if fault is not None:
                    return fault
            return await coming.finish()


def _by_member(push: PushTool) -> Tool:
    async def call(caller: RoomCaller, arguments: Arguments, _: LargeShare) -> Outcome:
        outcome = await push(caller.space, None if caller.access is None else caller.access.member_id, arguments)
        return Failure(outcome.error, outcome.wait_ms) if isinstance(outcome, Refusal) else outcome

    return call


def _decoded(data: str) -> Iterator[bytes | None]:
    """Piece by piece, so that nobody else waits for the whole; None: it is not base64."""
    for at in range(0, len(data), _PIECE_CHARS):
        piece = data[at : at + _PIECE_CHARS]
        if at + _PIECE_CHARS < len(data) and piece.endswith("="):
            yield None  # padding belongs at the end
            return
        try:
            yield binascii.a2b_base64(piece, strict_mode=True)
        except ValueError:
            yield None
            return
