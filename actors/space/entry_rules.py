"""Coming into the room of a space with IAM: who has to show an access token yet, and what one of them is good for.

They count as connections, and nobody is told of them. When one has waited too long is for `room_rules.py`. Pure, as
they are.
"""

from actors.grants.grants import Access
from actors.node.moment import Moment
from actors.space.connection_rules import Connection, FrameRate
from actors.space.room_effects import Opening
from actors.space.room_iam import RoomIam
from actors.space.settings import SpaceSettings
from schemas.echo.closes import RoomClose
from schemas.echo.errors import EchoError
from schemas.echo.frames import Auth, BadFrame, ClientFrame, Fault
from schemas.echo.scopes import WS_READ, WS_WRITE, allows


class EntryRules:
    def __init__(self, settings: SpaceSettings, iam: RoomIam) -> None:
        self.iam = iam
        self._settings = settings
        self._waiting: dict[str, tuple[Opening, FrameRate]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, key: str) -> bool:
        return key in self._waiting

    def wait(self, opening: Opening, now: Moment) -> None:
        """For its `auth` frame."""
        self._waiting[opening.key] = opening, FrameRate(self._settings, now.mono_s)

    def take(self, key: str) -> Opening | None:
        """It waits no more; None: it did not."""
        opening, _ = self._waiting.pop(key, (None, None))
        return opening

    def clear(self) -> list[str]:
        """Nobody waits any more; the keys of those who did."""
        keys = list(self._waiting)
        self._waiting.clear()
        return keys

    def frames_left(self, key: str, now: Moment) -> int:
        """As for one that is in."""
        return self._waiting[key][1].left(now.mono_s) + 1 if key in self._waiting else 0

    def is_over_rate(self, key: str, now: Moment) -> bool:
        """By one more frame."""
        return self._waiting[key][1].take(now.mono_s) is not None

    def judge_first(self, opening: Opening, frame: ClientFrame | BadFrame) -> Access | RoomClose:
        if isinstance(frame, BadFrame) and frame.fault is Fault.TOO_LARGE:
            return RoomClose.TOO_LARGE
        return self.judge(opening, frame.access_token) if isinstance(frame, Auth) else RoomClose.UNAUTHORIZED

    def judge(self, opening: Opening, access_token: str) -> Access | RoomClose:
        access = self.iam.find(access_token)
        if access is None:
            return RoomClose.UNAUTHORIZED
        may_enter = _has_a_scope(access) and self.iam.claim_uid(
            opening.uid, access.member_id, is_minted=opening.is_minted
        )
        return access if may_enter else RoomClose.FORBIDDEN

    def judge_again(self, connection: Connection, access_token: str) -> Access | EchoError:
        """Of one that is in the room already: it stays a connection of the same member."""
        access = self.iam.find(access_token)
        if access is None or access.member_id != connection.member_id:
            return EchoError.UNAUTHORIZED
        return access if _has_a_scope(access) else EchoError.INSUFFICIENT_SCOPE


def _has_a_scope(access: Access) -> bool:
    return allows(access.scopes, WS_READ) or allows(access.scopes, WS_WRITE)
