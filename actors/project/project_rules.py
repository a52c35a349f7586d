"""What may be done to a project, and what follows: events, or why not. Pure.

    (nothing) ── created, with its first room ──► there ── deleted, with all its rooms ──► (nothing)
                                                    ├── a further room attached (`multi_space` only)
                                                    ├── a new room in the place of one, which is over then: booked
                                                    ├── its prompt set
                                                    └── files published, replaced, deleted

Rooms are ended by the clock as well, of which nothing is written here: the first place stays, and waits for `book`; a
further room that is over is dropped when another is attached. Opening rooms and keeping bytes is left to others.
"""

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import TypeAlias

from actors.project.events import (
    Event,
    ObjectDeleted,
    ObjectPublished,
    ProjectCreated,
    ProjectDeleted,
    ProjectRecord,
    PromptSet,
    SpaceAttached,
    evolve,
)
from actors.project.settings import ProjectSettings
from actors.project.site import SiteObject
from schemas.echo.errors import EchoError
from schemas.echo.frames import Encoding

NAME_CHARS_MAX = 80  # of a project, an app or a room; more is `invalid_payload`
PROMPT_BYTES_MAX = 32 * 1024  # more is `invalid_payload`
# Whoever writes a prompt must not be able to end the part that it is put into.
_CLOSING_TAG = re.compile(r"<\s*/\s*(?:echo|app)_prompt\s*>", re.IGNORECASE)

Decision: TypeAlias = Sequence[Event] | EchoError


@dataclass(frozen=True, slots=True)
class NewProject:
    """What somebody wants to create."""

    name: str
    app_name: str | None = None  # None: as `name`
    domain: str | None = None  # a label or LABEL.SUFFIX; None: one is made
    is_encrypted: bool = False
    protocol: Encoding = Encoding.JSON
    system_prompt: str | None = None
    is_multi_space: bool = False
    has_iam: bool = False
    ttl_s: int | None = None  # of its first room; None: as long as it may


class Project:
    """A project that is there, as of now: what follows from its events. Readers change nothing in it.

    Who has waited asks `is_deleted` before going on.
    """

    __slots__ = ("_objects", "_paths", "is_deleted", "record", "size_bytes")

    def __init__(self, record: ProjectRecord, objects: Iterable[SiteObject] = ()) -> None:
        self.record = record
        self.is_deleted = False
        self.size_bytes = 0  # of all files
        self._objects: dict[str, SiteObject] = {}
        self._paths: list[str] = []  # sorted
        for one in objects:
            self._put(one)

    @property
    def project_id(self) -> str:
        return self.record.project_id

    @property
    def objects(self) -> Mapping[str, SiteObject]:
        """By path."""
        return MappingProxyType(self._objects)

    def object(self, path: str) -> SiteObject | None:
        return self._objects.get(path)

    def has_folder(self, path: str) -> bool:
        """Whether objects lie below this path, which has no slash at its end."""
        below = f"{path}/"
        at = bisect_left(self._paths, below)
        return at < len(self._paths) and self._paths[at].startswith(below)

    def objects_behind(self, prefix: str, after: str, count_max: int) -> list[SiteObject]:
        """Those whose path begins so, in the order of their paths, from the first one behind `after`."""
        at = max(bisect_left(self._paths, prefix), bisect_right(self._paths, after))
        behind = islice(self._paths, at, at + count_max)
        return [self._objects[path] for path in behind if path.startswith(prefix)]

    def apply(self, event: Event) -> None:
        self.record = evolve(self.record, event)
        match event:
            case ObjectPublished():
                self._put(published(event))
            case ObjectDeleted(path=path):
                self._remove(path)
            case ProjectDeleted():
                self.is_deleted = True
            case _:
                pass

    def _put(self, new: SiteObject) -> None:
        before = self._objects.get(new.path)
        if before is None:
            insort(self._paths, new.path)
        self.size_bytes += new.size - (0 if before is None else before.size)
        self._objects[new.path] = new

    def _remove(self, path: str) -> None:
        gone = self._objects.pop(path, None)
        if gone is not None:
            self.size_bytes -= gone.size
            del self._paths[bisect_left(self._paths, path)]


def published(event: ObjectPublished) -> SiteObject:
    return SiteObject(event.path, event.sha256, event.size, event.content_type, event.at_ms)


# ---- projects and their rooms ----------------------------------------------------------------------------------------


def wish_fault(wish: NewProject) -> EchoError | None:
    """What there is against it, whatever else there is. Its domain is for others."""
    names = (wish.name, wish.name if wish.app_name is None else wish.app_name)
    return None if all(map(is_name, names)) and is_prompt(wish.system_prompt) else EchoError.INVALID_PAYLOAD


def create(wish: NewProject, project_id: str, label: str, space_id: str, now_ms: int) -> Sequence[Event]:
    """Of a wish that has no fault, with a label that nobody has."""
    app_name = wish.name if wish.app_name is None else wish.app_name
    return (
        ProjectCreated(
            now_ms,
            project_id,
            wish.name,
            app_name,
            label,
            wish.protocol,
            wish.is_encrypted,
            wish.is_multi_space,
            wish.has_iam,
            wish.system_prompt,
        ),
        SpaceAttached(now_ms, space_id, None, wish.has_iam),
    )


def attach(
    record: ProjectRecord,
    space_id: str,
    name: str | None,
    is_live: Callable[[str], bool],
    settings: ProjectSettings,
    now_ms: int,
) -> Decision:
    """A further room. Those that are over leave their places, but for the first."""
    if not record.is_multi_space:
        return EchoError.MULTI_SPACE_DISABLED
    if name is not None and not is_name(name):
        return EchoError.INVALID_PAYLOAD
    over = tuple(space.space_id for space in record.spaces[1:] if not is_live(space.space_id))
    if len(record.spaces) - len(over) >= settings.spaces_per_project_max:
        return EchoError.SPACE_FULL
    return (SpaceAttached(now_ms, space_id, name, record.has_iam, dropped=over),)


def book(record: ProjectRecord, old_id: str | None, space_id: str, now_ms: int) -> Decision:
    """A new room in the place of one of its own; None: of the first."""
    old = next((space for space in record.spaces if old_id in (None, space.space_id)), None)
    if old is None:
        return EchoError.SPACE_NOT_FOUND
    return (SpaceAttached(now_ms, space_id, old.name, old.has_iam, replaces=old.space_id),)


def set_iam(record: ProjectRecord, space_id: str, now_ms: int, *, has_iam: bool) -> Decision:
    """The operator's word on a room of it."""
    space = next((space for space in record.spaces if space.space_id == space_id), None)
    if space is None:
        return EchoError.SPACE_NOT_FOUND
    return (SpaceAttached(now_ms, space_id, space.name, has_iam, replaces=space_id),)


def set_prompt(record: ProjectRecord, text: str | None, now_ms: int) -> Decision:
    if not is_prompt(text):
        return EchoError.INVALID_PAYLOAD
    return () if text == record.system_prompt else (PromptSet(now_ms, text),)


def is_name(text: str) -> bool:
    return 1 <= len(text) <= NAME_CHARS_MAX and text.isprintable() and bool(text.strip())


def is_prompt(text: str | None) -> bool:
    if text is None:
        return True
    try:
        size = len(text.encode())
    except UnicodeEncodeError:  # half of a pair
        return False
    return size <= PROMPT_BYTES_MAX and "\0" not in text and _CLOSING_TAG.search(text) is None


# ---- files -----------------------------------------------------------------------------------------------------------


def publish(project: Project, wish: SiteObject, settings: ProjectSettings, now_ms: int) -> Decision:
    """A file whose bytes are durable. That its path is one is for others to see to."""
    if wish.size > settings.object_bytes_max:
        return EchoError.PAYLOAD_TOO_LARGE
    before = project.object(wish.path)
    more_bytes = wish.size - (0 if before is None else before.size)
    is_full = before is None and len(project.objects) >= settings.objects_max
    # Where a limit was lowered, a file may still be replaced by a smaller one.
    if is_full or (more_bytes > 0 and project.size_bytes + more_bytes > settings.site_bytes_max):
        return EchoError.SPACE_FULL
    return (ObjectPublished(now_ms, wish.path, wish.sha256, wish.size, wish.content_type),)


def unpublish(project: Project, path: str, now_ms: int) -> Decision:
    return EchoError.OBJECT_NOT_FOUND if project.object(path) is None else (ObjectDeleted(now_ms, path),)


def record_after(record: ProjectRecord, decided: Sequence[Event]) -> ProjectRecord:
    for event in decided:
        record = evolve(record, event)
    return record
