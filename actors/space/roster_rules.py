"""Who is in a room, by everything that a message can be addressed with; and who has just gone and may be back.

Routing goes by index: a message costs its recipients and nothing else. What is sent to them, and when somebody has to
go, is for the room's rules.
"""

from collections.abc import Iterable, Iterator

from actors.grants.grants import Access
from actors.space.connection_rules import Connection

_Index = dict[str, dict[str, Connection]]  # by name, then key; no name is without connections


class Roster:
    def __init__(self) -> None:
        self._here: dict[str, Connection] = {}  # by key, in the order of opening
        self._watching: dict[str, Connection] = {}
        self._by_uid: _Index = {}
        self._by_sub: _Index = {}
        self._deaf = 0  # that may not receive; in most rooms none
        self._away: _Index = {}  # by uid: gone abnormally, and nobody has been told yet

    def __len__(self) -> int:
        return len(self._here)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._here.values())

    def get(self, key: str) -> Connection | None:
        return self._here.get(key)

    # ---- who comes and goes -----------------------------------------------------------------------------------------

    def add(self, connection: Connection, subs: Iterable[str]) -> None:
        self._here[connection.key] = connection
        self._deaf += not connection.can_receive
        if connection.watches:
            self._watching[connection.key] = connection
        self._by_uid.setdefault(connection.uid, {})[connection.key] = connection
        self.enter(connection, subs)

    def remove(self, connection: Connection) -> None:
        """Its own list of subspaces stays as it was: should it be back, what differs is told."""
        key = connection.key
        del self._here[key]
        self._deaf -= not connection.can_receive
        self._watching.pop(key, None)
        _discard(self._by_uid, connection.uid, key)
        for sub in connection.subs:
            _discard(self._by_sub, sub, key)

    def clear(self) -> None:
        for index in (self._here, self._watching, self._by_uid, self._by_sub, self._away):
            index.clear()
        self._deaf = 0

    def admit(self, connection: Connection, access: Access) -> None:
        """One that is here is given another access."""
        self._deaf -= not connection.can_receive
        connection.admit(access)
        self._deaf += not connection.can_receive

    def enter(self, connection: Connection, subs: Iterable[str]) -> None:
        for sub in subs:
            connection.subs[sub] = None
            self._by_sub.setdefault(sub, {})[connection.key] = connection

    def exit(self, connection: Connection, subs: Iterable[str]) -> None:
        """Of subspaces that it is in."""
        for sub in subs:
            del connection.subs[sub]
            _discard(self._by_sub, sub, connection.key)

    # ---- who may be back --------------------------------------------------------------------------------------------

    @property
    def is_awaiting(self) -> bool:
        return bool(self._away)

    def put_away(self, connection: Connection) -> None:
        self._away.setdefault(connection.uid, {})[connection.key] = connection

    def take_up(self, uid: str) -> Connection | None:
        """The one of this `uid` that has been away for longest, if there is one: it is back."""
        away = self._away.get(uid)
        return None if away is None else self.give_up(uid, next(iter(away)))

    def give_up(self, uid: str, key: str) -> Connection | None:
        """It is not coming back; None: it is back already."""
        connection = self._away.get(uid, {}).get(key)
        if connection is not None:
            _discard(self._away, uid, key)
        return connection

    # ---- whom something is for --------------------------------------------------------------------------------------

    def recipients(self, sub: str | None, tuid: str | None) -> list[str]:
        """The keys of those a message with this address is for, whoever sent it."""
        if tuid is None:
            return self._hearing(list(self._here if sub is None else self._by_sub.get(sub, ())))
        of_uid = self._by_uid.get(tuid, {})
        return self._hearing(list(of_uid) if sub is None else [key for key, one in of_uid.items() if sub in one.subs])

    def watchers(self, but: Connection) -> list[str]:
        """The keys of those who want to know who is here."""
        return self._hearing([key for key in self._watching if key != but.key])

    def _hearing(self, keys: list[str]) -> list[str]:
        """Those of them that may receive."""
        return [key for key in keys if self._here[key].can_receive] if self._deaf else keys

    def known(self) -> Iterator[Connection]:
        """Who is here to the others: also who may be back, of whom nobody has been told that it left."""
        yield from self._here.values()
        for away in self._away.values():
            yield from away.values()

    def present(self, sub: str | None) -> dict[str, Connection]:
        """In the order in which they came. Not to be changed."""
        return self._here if sub is None else self._by_sub.get(sub, {})


def _discard(index: _Index, name: str, key: str) -> None:
    of_name = index[name]
    del of_name[key]
    if not of_name:
        del index[name]
