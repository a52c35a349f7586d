"""What `GET /metrics` tells of echo spaces and projects. Where they are off, every series is there, at 0 but for those
left."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from actors.project.projects import Projects
from actors.space.counts import SpaceCounts
from actors.space.rooms import Rooms
from actors.space.spaces import EchoSpaces
from gateway.observe.metrics.text import Family, counter, counters, gauge

LOST = "lost"  # in place of the reason of a connection that ended without a close
_HAS = {False: "none", True: "given"}


@dataclass(slots=True)
class SpaceFamilies:
    counts: SpaceCounts = field(default_factory=SpaceCounts)
    spaces: EchoSpaces | None = None
    rooms: Rooms | None = None
    projects: Projects | None = None

    def families(self) -> Iterator[Family]:
        yield from self._lives()
        yield from self._contents()
        yield from self._rooms()
        yield from self._projects()
        counts = self.counts
        refused = {"request": counts.requests_refused, "upgrade": counts.upgrades_refused}
        yield counters(
            "heliograph_space_refusals_total",
            "What echo spaces refused, by what it was and by the word of the error.",
            (
                ({"of": of, "error": word}, count)
                for of, words in {**refused, "frame": counts.frames_refused}.items()
                for word, count in words.items()
            ),
        )

    def _lives(self) -> Iterator[Family]:
        spaces, counts = self.spaces, self.counts
        yield gauge("heliograph_spaces", "Echo spaces that are open.", 0 if spaces is None else len(spaces))
        yield counter("heliograph_spaces_opened_total", "Spaces that were opened.", counts.opened)
        yield counters(
            "heliograph_spaces_ended_total",
            "Spaces that ended, by reason.",
            (({"reason": ending}, count) for ending, count in counts.ended.items()),
        )
        unerased = 0 if spaces is None else spaces.unerased
        yield gauge("heliograph_spaces_unerased", "Spaces that ended and are not wholly erased yet.", unerased)
        yield counter(
            "heliograph_space_erase_failures_total",
            "Tries to erase a space that the disk refused.",
            counts.erase_failures,
        )

    def _contents(self) -> Iterator[Family]:
        stored_bytes = 0 if self.spaces is None else self.spaces.store.totals().bytes
        yield gauge(
            "heliograph_space_bytes",
            "Bytes of values and files of all spaces, with what each takes besides.",
            stored_bytes,
        )
        yield counters(
            "heliograph_space_operations_total",
            "What was done with values and files.",
            (({"operation": operation}, count) for operation, count in self.counts.operations.items()),
        )

    def _projects(self) -> Iterator[Family]:
        projects = () if self.projects is None else tuple(self.projects)
        yield gauge("heliograph_projects", "Projects that there are.", len(projects))
        yield gauge(
            "heliograph_site_objects",
            "Published files of all projects.",
            sum(len(project.objects) for project in projects),
        )
        yield gauge(
            "heliograph_site_object_bytes",
            "Bytes of the published files of all projects, each counted as often as it is published.",
            sum(project.size_bytes for project in projects),
        )

    def _rooms(self) -> Iterator[Family]:
        rooms, counts = self.rooms, self.counts
        connections = 0 if rooms is None else rooms.connections
        yield gauge("heliograph_room_connections", "Connections in rooms.", connections)
        yield counters(
            "heliograph_room_joins_total",
            "Connections that were upgraded, by the area of their tz and by whether they gave a loc.",
            (({"tz": area, "loc": _HAS[has_locale]}, n) for (area, has_locale), n in counts.joins.items()),
        )
        closes = [(close.value.reason, count) for close, count in counts.closes.items()]
        yield counters(
            "heliograph_room_closes_total",
            "Connections to rooms that ended, by reason.",
            (({"reason": reason}, count) for reason, count in [*closes, (LOST, counts.lost)]),
        )
        yield counter("heliograph_room_messages_total", "Messages that rooms took.", counts.messages)
        yield counter(
            "heliograph_room_deliveries_total", "Messages that rooms sent to a connection.", counts.deliveries
        )
