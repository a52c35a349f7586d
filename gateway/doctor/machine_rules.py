"""What a machine's clock, limits and versions mean for a gateway on it. Pure."""

from collections.abc import Iterator

from gateway.doctor.facts import Clock, Machine
from gateway.doctor.finding import Finding, Severity
from gateway.main.settings import Settings

CLOCK_BEHIND_MS_MAX = 60_000  # by which the newest event may be ahead of us: a manifest may be, and no more
CLOCK_ERROR_MS_MAX = 1_000  # beyond that tokens and manifests may be judged by a wrong second
FILES_MIN = 1_024  # below: a gateway cannot serve even a small fleet
FILES_BESIDES = 512  # databases, logs, upstreams
SQLITE_MIN = (3, 37, 0)  # strict tables


def machine_findings(machine: Machine, settings: Settings | None) -> Iterator[Finding]:
    """Without settings nobody knows how many files are wanted."""
    yield from _clock(machine.clock)
    if machine.sqlite < SQLITE_MIN:
        yield Finding(
            Severity.ERROR,
            "versions",
            f"SQLite {_dotted(machine.sqlite)} is too old for the kept audit",
            f"use a Python that is built with SQLite {_dotted(SQLITE_MIN)} or newer",
        )
    if settings is not None:
        yield from _files(machine.files_max, settings)


def _clock(clock: Clock) -> Iterator[Finding]:
    if clock.newest_event_ms is not None and clock.newest_event_ms - clock.now_ms > CLOCK_BEHIND_MS_MAX:
        ahead_s = (clock.newest_event_ms - clock.now_ms) // 1000
        yield Finding(
            Severity.ERROR,
            "clock",
            f"the newest event of the log is {ahead_s} s in the future: this clock is behind, or was ahead then",
            "set the clock by NTP, then look again",
        )
    if clock.is_synchronized is False:
        yield Finding(
            Severity.WARNING,
            "clock",
            "the kernel says that this clock is not synchronized",
            "run chrony or systemd-timesyncd; for a container or VM, on its host",
        )
    elif clock.error_ms_max is not None and clock.error_ms_max > CLOCK_ERROR_MS_MAX:
        yield Finding(
            Severity.WARNING,
            "clock",
            f"the clock may be wrong by {clock.error_ms_max} ms",
            "see that the NTP server is reachable and near",
        )


def _files(files_max: int, settings: Settings) -> Iterator[Finding]:
    wanted = settings.listener.nodes_max + settings.stream.streams_max + settings.door.connections_max + FILES_BESIDES
    if files_max >= wanted:
        return
    yield Finding(
        Severity.ERROR if files_max < FILES_MIN else Severity.WARNING,
        "file limit",
        f"a process may have {files_max} files open; nodes, streams and connections by their limits take {wanted}",
        "raise the hard limit (LimitNOFILE= of a systemd unit, --ulimit nofile= of a container), or lower "
        "listener.nodes_max, stream.streams_max and door.connections_max",
    )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
