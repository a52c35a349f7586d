"""Where `heliograph audit` reads: of the gateway that has the folder, or of the folder itself.

Processes that share a folder keep a part of the audit each, and a request to the gateway reaches any one of them. So
where there are several parts they are read from the disk, and shown as one: by time, each line with its process.
"""

from collections.abc import Iterator
from heapq import merge
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from gateway.commands.parsing import CommandError
from gateway.commands.reach import Operator, RefusedError, ask, now_ms
from gateway.identity.tokens import OperatorScope
from gateway.main.data_folder import PLACES, DataFolder, is_held
from gateway.observe.audit.audit_store import FOLDER, search
from gateway.observe.audit.query_rules import LINES_MAX, read_query
from schemas.errors import Code

Line = dict[str, Any]


def parts_of(path: Path) -> list[int]:
    """Of which processes there is a part. None, or the first one's alone: it is not several."""
    numbers = [int(folder.parent.name) for folder in path.glob(f"{PLACES}/*/{FOLDER}") if folder.parent.name.isdigit()]
    return [0, *sorted(numbers)] if numbers else []


def newest_first(path: Path, wanted: dict[str, str]) -> Iterator[Line]:
    """Every line that matches, of all parts."""
    parts = parts_of(path)
    if not parts:
        return _Pages(path, wanted).lines()
    return merge(*(_Pages(path, wanted, part=part).lines() for part in parts), key=_time, reverse=True)


def _time(line: Line) -> str:
    return str(line["at"])


class _Pages:
    """All lines of a search, page by page."""

    def __init__(
        self,
        path: Path,
        wanted: dict[str, str],
        limit: int = LINES_MAX,
        *,
        part: int | None = None,
        holds: bool = True,
    ) -> None:
        """Without `holds` a stopped gateway's folder is read as it is: whoever holds it keeps one from starting."""
        self._path = path
        self._part = part
        self._holds = holds
        self._wanted = {**wanted, "limit": str(limit)}
        self._place_of = "after" if "after" in wanted else "before"

    def lines(self) -> Iterator[Line]:
        place: int | None = None
        while True:
            fields = self._wanted if place is None else {**self._wanted, self._place_of: str(place)}
            page = self._page(fields)
            yield from page["lines"]
            place = page["next"]
            if place is None:
                return

    def _page(self, fields: dict[str, str]) -> dict[str, Any]:
        def here(_: DataFolder | None = None) -> dict[str, Any]:
            found = search(self._path / FOLDER, read_query(fields, now_ms()))
            return {"lines": [line.shown() for line in found.lines], "next": found.place}

        def there(operator: Operator) -> dict[str, Any]:
            try:
                answer: dict[str, Any] = operator.get(f"/admin/audit?{urlencode(fields)}", "lines")
            except RefusedError as error:
                if error.envelope["code"] == Code.MANIFEST_NOT_FOUND:
                    raise CommandError(
                        "this gateway keeps no audit: it does with `enabled = true` in [audit]"
                    ) from None
                raise
            return answer

        if self._part is not None:
            return self._page_of(self._part, fields)
        if not self._holds and not is_held(self._path):
            return here()
        return ask(self._path, here, there, OperatorScope.FLEET_READ)

    def _page_of(self, part: int, fields: dict[str, str]) -> dict[str, Any]:
        folder = self._path if part == 0 else self._path / PLACES / str(part)
        found = search(folder / FOLDER, read_query(fields, now_ms()))
        return {"lines": [{**line.shown(), "process": part} for line in found.lines], "next": found.place}


class Followed:
    """What is written from now on, of one part. Each line is searched once: where hardly any matches, a search from the
    last match on would read all of the audit twice a second."""

    def __init__(self, path: Path, wanted: dict[str, str], part: int | None = None, *, is_new: bool = False) -> None:
        """`is_new`: all that it has is from now on."""
        self._path = path
        self._wanted = wanted
        self._part = part
        self.through = 0 if is_new else self._newest()  # the id up to which lines have been looked at

    def pass_over(self, lines: list[Line]) -> None:
        """They have been printed."""
        mine = (line["id"] for line in lines if line.get("process") == self._part)
        self.through = max(self.through, *mine, 0)

    def more(self) -> list[Line]:
        newest = self._newest()  # first: what comes during the search is for the next one
        if newest <= self.through:
            return []
        wanted = {**self._wanted, "after": str(self.through)}
        lines = list(_Pages(self._path, wanted, part=self._part, holds=False).lines())
        self.through = newest
        self.pass_over(lines)
        return lines

    def _newest(self) -> int:
        last = next(_Pages(self._path, {}, 1, part=self._part, holds=False).lines(), None)
        return 0 if last is None else int(last["id"])


class FollowedParts:
    """The same of all parts, also of a process that starts meanwhile."""

    def __init__(self, path: Path, wanted: dict[str, str]) -> None:
        self._path = path
        self._wanted = wanted
        parts: list[int | None] = [*parts_of(path)] or [None]
        self._parts = {part: Followed(path, wanted, part) for part in parts}

    def pass_over(self, lines: list[Line]) -> None:
        for followed in self._parts.values():
            followed.pass_over(lines)

    def more(self) -> list[Line]:
        """By time."""
        if None not in self._parts:
            for part in parts_of(self._path):
                if part not in self._parts:
                    self._parts[part] = Followed(self._path, self._wanted, part, is_new=True)
        return sorted((line for followed in self._parts.values() for line in followed.more()), key=_time)
