"""The projects of a gateway, driven: decided, made durable, then true for everybody.

What happened to a project is a stream of its own, `project/{id}`, cut by age as all history is. What holds now lies in
another, `projects/{id}`, as open items: the record, and each published file. Both are written together, so publishing
for years makes neither a start nor the log longer. What concerns a room as well is written with the room's own events
in one append (`rooms.py`): a project and its rooms agree after every crash, and a start has nothing to repair.

Decisions on one project are taken one after the other. Whoever is cancelled while waiting for its turn has changed
nothing; from then on it is done wholly. Tokens of rooms, bytes of files and requests are for others.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from heapq import nsmallest

import structlog
import trio

from actors.log.store import LogStore, OpenItem, Part, UnreadableError
from actors.project import project_rules
from actors.project.events import (
    Event,
    ObjectDeleted,
    ObjectPublished,
    ProjectCreated,
    ProjectDeleted,
    ProjectRecord,
    PromptSet,
    SpaceAttached,
    created,
    decode_object,
    decode_record,
    encode,
)
from actors.project.project_rules import Decision, NewProject, Project, published, record_after
from actors.project.rooms import NewRoom, ProjectRooms
from actors.project.settings import ProjectSettings
from actors.project.site import SiteObject
from actors.space.space_log import fault_of
from actors.supervision.crash_report import report
from schemas.echo.errors import EchoError
from schemas.echo.site_labels import RANDOM_BYTES, label_from, label_of

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

LABEL_TRIES_MAX = 8  # of random labels; then `overloaded`: with 2^30 of them that does not happen
_STATE = "projects/"
_RECORD = "project"
_OBJECT = "object/"
_COVERED = b"{}"  # the snapshot of a project's stream: its state is in the other one


def stream_of(project_id: str) -> str:
    """What happened to this project."""
    return f"project/{project_id}"


def state_of(project_id: str) -> str:
    """What holds of it now."""
    return f"{_STATE}{project_id}"


def _is_good() -> EchoError | None:
    return None


@dataclass(frozen=True, slots=True)
class Published:
    object: SiteObject
    replaced: SiteObject | None

    @property
    def is_new(self) -> bool:
        return self.replaced is None


@dataclass(slots=True, eq=False)
class _Entry:
    project: Project
    turn: trio.Lock = field(default_factory=trio.Lock)


class Projects:
    """Satisfies `SiteDirectory`. `random(n)` gives n random bytes, `new_id` a ULID. `load` comes first."""

    def __init__(
        self,
        store: LogStore,
        rooms: ProjectRooms,
        settings: ProjectSettings,
        now_ms: Callable[[], int],
        random: Callable[[int], bytes],
        new_id: Callable[[], str],
        own_labels: Set[str] = frozenset(),
    ) -> None:
        """`own_labels` are the gateway's, which no project may have."""
        self.settings = settings
        self.on_delete: list[Callable[[str], None]] = []
        """Told at once of every project that is deleted."""
        self._store = store
        self._rooms = rooms
        self._now_ms = now_ms
        self._random = random
        self._new_id = new_id
        self._own_labels = own_labels
        self._entries: dict[str, _Entry] = {}
        self._of_label: dict[str, str] = {}
        self._being_created: set[str] = set()  # labels
        self._uses: Counter[str] = Counter()
        self._is_one_unreadable = False  # and nobody knows which contents it has

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Project]:
        return (entry.project for entry in list(self._entries.values()))

    async def load(self) -> None:
        """Once, at start."""
        for stream in await self._store.open_streams():
            if stream.startswith(_STATE):
                await self._load(stream)

    async def _load(self, stream: str) -> None:
        record: ProjectRecord | None = None
        objects: list[SiteObject] = []
        try:
            for item in (await self._store.load(stream)).open_items:
                if item.key == _RECORD:
                    record = decode_record(item.data)
                else:
                    objects.append(decode_object(item.data))
            if record is None:
                raise ValueError("no record")
        except (UnreadableError, ValueError) as error:  # damaged, or of a newer version: that project's trouble alone
            log.error("project_unreadable", project_id=stream.removeprefix(_STATE), causes=report(error))
            self._is_one_unreadable = True
            return
        self._put(Project(record, objects))

    # ---- what there is -----------------------------------------------------------------------------------------------

    def get(self, project_id: str) -> Project | None:
        entry = self._entries.get(project_id)
        return None if entry is None else entry.project

    def site(self, label: str) -> Project | None:
        return self.get(self._of_label.get(label, ""))

    def behind(self, project_id: str, count_max: int) -> list[Project]:
        """In the order of their ids, from the first one behind this."""
        behind = nsmallest(count_max, (known for known in self._entries if known > project_id))
        return [self._entries[known].project for known in behind]

    def hashes_in_use(self) -> Set[str]:
        """Of the contents of all published files that are known. Not a copy: use it before the next await."""
        return self._uses.keys()

    def uses(self, sha256: str) -> bool:
        """Whether a published file has this content, as far as that is known: if not, it is one that is kept."""
        return self._is_one_unreadable or sha256 in self._uses

    # ---- projects and their rooms ------------------------------------------------------------------------------------

    async def create(self, wish: NewProject) -> Project | EchoError:
        """With its first room."""
        label = self._fault(wish) or self._choose_label(wish)
        if isinstance(label, EchoError):
            await trio.lowlevel.checkpoint()
            return label
        project_id, space_id = self._id(), self._id()
        decided = project_rules.create(wish, project_id, label, space_id, self._now_ms())
        assert isinstance(decided[0], ProjectCreated)
        project = Project(created(decided[0]))
        room = NewRoom(space_id, project_id, wish.protocol, wish.is_encrypted, wish.has_iam, wish.ttl_s)
        self._being_created.add(label)
        try:
            with trio.CancelScope(shield=True):
                fault = await self._rooms.open(room, *_parts(project, decided))
            if fault is not None:
                return fault
            self._put(project)
            self._apply(project, decided)
        finally:
            self._being_created.discard(label)
        log.info("project_created", project_id=project_id, space_id=space_id)
        return project

    def _fault(self, wish: NewProject) -> EchoError | None:
        fault = project_rules.wish_fault(wish)
        is_full = len(self._entries) + len(self._being_created) >= self.settings.projects_max
        return EchoError.OVERLOADED if fault is None and is_full else fault

    def _choose_label(self, wish: NewProject) -> str | EchoError:
        if wish.domain is not None:
            label = label_of(wish.domain, self.settings.site_suffix)
            if label is None or label in self._own_labels:
                return EchoError.INVALID_DOMAIN
            return EchoError.DOMAIN_TAKEN if self._is_taken(label) else label
        for _ in range(LABEL_TRIES_MAX):
            label = label_from(wish.name, self._random(RANDOM_BYTES))
            if not self._is_taken(label):
                return label
        return EchoError.OVERLOADED

    def _is_taken(self, label: str) -> bool:
        return label in self._of_label or label in self._being_created

    async def attach_space(self, project_id: str, name: str | None, ttl_s: int | None) -> Project | EchoError:
        """A further room, of a project with `multi_space`."""
        space_id = self._id()

        def decide(project: Project, now_ms: int) -> Decision:
            return project_rules.attach(project.record, space_id, name, self._rooms.is_live, self.settings, now_ms)

        async def open_room(project: Project, decided: Sequence[Event]) -> EchoError | None:
            record = project.record
            room = NewRoom(space_id, project_id, record.protocol, record.is_encrypted, record.has_iam, ttl_s)
            return await self._rooms.open(room, *_parts(project, decided))

        return _project(await self._record(project_id, decide, open_room))

    async def replace_space(self, project_id: str, old_id: str | None) -> Project | EchoError:
        """Book: a new room in the place of this one, which is over then; None: of the first."""
        space_id = self._id()

        def decide(project: Project, now_ms: int) -> Decision:
            return project_rules.book(project.record, old_id, space_id, now_ms)

        async def open_room(project: Project, decided: Sequence[Event]) -> EchoError | None:
            record, (attached,) = project.record, decided
            assert isinstance(attached, SpaceAttached)
            room = NewRoom(
                space_id,
                project_id,
                record.protocol,
                record.is_encrypted,
                attached.has_iam,
                replaces=attached.replaces,
            )
            return await self._rooms.open(room, *_parts(project, decided))

        booked = _project(await self._record(project_id, decide, open_room))
        if isinstance(booked, Project):
            log.info("project_booked", project_id=project_id, space_id=space_id)
        return booked

    async def set_iam(self, project_id: str, space_id: str, *, is_enabled: bool) -> Project | EchoError:
        """Of a room of it that is live."""

        def decide(project: Project, now_ms: int) -> Decision:
            return project_rules.set_iam(project.record, space_id, now_ms, has_iam=is_enabled)

        async def switch(project: Project, decided: Sequence[Event]) -> EchoError | None:
            return await self._rooms.set_iam(space_id, *_parts(project, decided), is_enabled=is_enabled)

        return _project(await self._record(project_id, decide, switch))

    async def set_prompt(self, project_id: str, text: str | None) -> Project | EchoError:
        def decide(project: Project, now_ms: int) -> Decision:
            return project_rules.set_prompt(project.record, text, now_ms)

        return _project(await self._record(project_id, decide, self._append))

    async def delete(self, project_id: str) -> EchoError | None:
        """With its rooms, which end at once; what else it has is told to go by `on_delete`."""

        def decide(_project: Project, now_ms: int) -> Decision:
            return (ProjectDeleted(now_ms),)

        async def end_rooms(project: Project, decided: Sequence[Event]) -> EchoError | None:
            space_ids = [space.space_id for space in project.record.spaces]
            return await self._rooms.end(space_ids, *_parts(project, decided))

        deleted = await self._record(project_id, decide, end_rooms)
        return deleted if isinstance(deleted, EchoError) else None

    # ---- files -------------------------------------------------------------------------------------------------------

    async def publish(
        self,
        project_id: str,
        wish: SiteObject,
        still_good: Callable[[], EchoError | None] = _is_good,
        *more: Part,
    ) -> Published | EchoError:
        """A file whose bytes are durable under their hash already; its time is the project's to say.

        `still_good` is asked when it has its turn, right before it is written. `more` is written with it.
        """
        replaced: list[SiteObject | None] = [None]

        def decide(project: Project, now_ms: int) -> Decision:
            replaced[0] = project.object(wish.path)
            return still_good() or project_rules.publish(project, wish, self.settings, now_ms)

        async def append(project: Project, decided: Sequence[Event]) -> EchoError | None:
            return fault_of(await self._store.append(*_parts(project, decided), *more))

        done = await self._record(project_id, decide, append)
        if isinstance(done, EchoError):
            return done
        (event,) = done.decided
        assert isinstance(event, ObjectPublished)
        return Published(published(event), replaced[0])

    async def unpublish(self, project_id: str, path: str) -> SiteObject | EchoError:
        """What was there."""
        gone: list[SiteObject] = []

        def decide(project: Project, now_ms: int) -> Decision:
            found = project.object(path)
            gone[:] = [] if found is None else [found]
            return project_rules.unpublish(project, path, now_ms)

        done = await self._record(project_id, decide, self._append)
        return done if isinstance(done, EchoError) else gone[0]

    # ---- what all of these do ----------------------------------------------------------------------------------------

    async def _record(
        self,
        project_id: str,
        decide: Callable[[Project, int], Decision],
        write: Callable[[Project, Sequence[Event]], Awaitable[EchoError | None]],
    ) -> "_Done | EchoError":
        """Decide on what is true now, write it, and let it be true."""
        entry = self._entries.get(project_id)
        if entry is None:
            await trio.lowlevel.checkpoint()
            return EchoError.PROJECT_NOT_FOUND
        project = entry.project
        async with entry.turn:
            if project.is_deleted:  # while this waited
                return EchoError.PROJECT_NOT_FOUND
            decided = decide(project, self._now_ms())
            if isinstance(decided, EchoError):
                return decided
            if decided:
                with trio.CancelScope(shield=True):  # else the next one would decide on what is no longer true
                    fault = await write(project, decided)
                if fault is not None:
                    return fault
                self._apply(project, decided)
        return _Done(project, decided)

    async def _append(self, project: Project, decided: Sequence[Event]) -> EchoError | None:
        return fault_of(await self._store.append(*_parts(project, decided)))

    def _put(self, project: Project) -> None:
        self._entries[project.project_id] = _Entry(project)
        self._of_label[project.record.label] = project.project_id
        self._uses.update(one.sha256 for one in project.objects.values())

    def _apply(self, project: Project, decided: Sequence[Event]) -> None:
        for event in decided:
            if isinstance(event, ObjectPublished | ObjectDeleted):
                self._use_less(project.object(event.path))
            if isinstance(event, ObjectPublished):
                self._uses[event.sha256] += 1
            project.apply(event)
        if project.is_deleted:
            self._remove(project)

    def _remove(self, project: Project) -> None:
        del self._entries[project.project_id], self._of_label[project.record.label]
        for one in project.objects.values():
            self._use_less(one)
        log.info("project_deleted", project_id=project.project_id)
        for tell in self.on_delete:
            tell(project.project_id)

    def _use_less(self, gone: SiteObject | None) -> None:
        if gone is not None:
            self._uses[gone.sha256] -= 1
            if not self._uses[gone.sha256]:
                del self._uses[gone.sha256]

    def _id(self) -> str:
        return self._new_id().lower()


@dataclass(frozen=True, slots=True)
class _Done:
    project: Project
    decided: Sequence[Event]


def _project(done: _Done | EchoError) -> Project | EchoError:
    return done if isinstance(done, EchoError) else done.project


def _parts(project: Project, decided: Sequence[Event]) -> tuple[Part, Part]:
    """What is written: that it happened, and what holds then."""
    project_id, at_ms = project.project_id, decided[0].at_ms
    opened: list[OpenItem] = []
    closed: list[str] = []
    for event in decided:
        match event:
            case ObjectPublished(path=path):
                opened.append(OpenItem(_OBJECT + path, encode(published(event))))
            case ObjectDeleted(path=path):
                closed.append(_OBJECT + path)
            case ProjectDeleted():
                closed += [_RECORD, *(_OBJECT + path for path in project.objects)]
            case ProjectCreated() | SpaceAttached() | PromptSet():
                pass
    if any(isinstance(event, ProjectCreated | SpaceAttached | PromptSet) for event in decided):
        opened.append(OpenItem(_RECORD, encode(record_after(project.record, decided))))
    happened = Part(stream_of(project_id), None, at_ms, tuple(map(encode, decided)), snapshot=_COVERED)
    return happened, Part(state_of(project_id), None, at_ms, opened=tuple(opened), closed=tuple(closed))
