"""Where log lines go, and how they look: to a standard stream or a file, as JSON lines or pretty for a terminal.

What is worth a line, and which fields it has, is decided by those who log. A line is written at once, by the event loop
itself, and must never hold it up or take it down: a line that cannot be written now is lost, and that is told.
"""

import contextlib
import errno
import json
import logging
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, TextIO

import msgspec
import structlog

from actors.log_throttle import LogThrottle

COMPLAIN_EVERY_S = 60.0
PIECE_BYTES_MAX = select.PIPE_BUF  # what a pipe that polls as writable takes without blocking
_STREAMS: dict[str, Callable[[], TextIO | None]] = {"stderr": lambda: sys.stderr, "stdout": lambda: sys.stdout}
# Without blocking: the file may be a pipe whose reader has stopped, or has not come yet.
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class LogSettings:
    target: str = "stderr"  # or stdout, or the path of a file
    format: Literal["auto", "json", "pretty"] = "auto"
    mcp: bool = False  # a line `mcp` for every request to `/mcp`, without tokens and arguments


class LogTargetError(Exception):
    """The file cannot be opened; the text says why."""


class Sink:
    """An open file, terminal or pipe that takes lines, or says that it does not."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._torn = False  # the last line was cut short
        self._poll: select.poll | None = None
        if not stat.S_ISREG(os.fstat(fd).st_mode):  # a regular file never blocks
            self._poll = select.poll()
            self._poll.register(fd, select.POLLOUT)

    def put(self, line: bytes) -> None:
        """Raises OSError when nothing is written, or only its beginning; the next is a line of its own all the same."""
        left = b"\n%b\n" % line if self._torn else line + b"\n"
        while left:
            # Standard error is shared with other processes: it cannot be made non-blocking, only asked beforehand.
            if self._poll is not None and not self._poll.poll(0):
                raise BlockingIOError(errno.EAGAIN, "nobody reads it")
            left = left[os.write(self.fd, left if self._poll is None else left[:PIECE_BYTES_MAX]) :]
            self._torn = bool(left)


class LogOutput:
    """What structlog takes for a logger: every level is `write`."""

    def __init__(self, target: str, now_s: Callable[[], float] = time.monotonic) -> None:
        """Raises OSError when the file cannot be opened."""
        self._target = target
        self._sink = Sink(_open(target))
        self._now_s = now_s
        self._reopen_wanted = False
        self._lost = 0  # lines, that the log does not tell of yet
        self._telling = False
        self._complaints = LogThrottle(COMPLAIN_EVERY_S)
        self.debug = self.info = self.warning = self.error = self.critical = self.write

    @property
    def is_terminal(self) -> bool:
        return os.isatty(self._sink.fd)

    def reopen(self) -> None:
        """Let go of a file that has been rotated, before the next line: no more may a signal handler safely do."""
        self._reopen_wanted = True

    def write(self, line: bytes) -> None:
        """Never raises, never waits."""
        if self._reopen_wanted:
            self._reopen()
        try:
            self._sink.put(line)
        except OSError as error:
            self._lost += 1
            if lost := self._complaints.hit(self._now_s()):
                self._complain(f"{lost} log lines lost: {error.strerror}")
        else:
            if self._telling:
                self._lost = 0
            elif self._lost:
                self._tell()

    def _tell(self) -> None:
        """In the log itself, where a reader would miss them; if that line is lost too, after the next one."""
        self._telling = True
        structlog.get_logger().warning("log_lines_lost", lines=self._lost)
        self._telling = False

    def _reopen(self) -> None:
        self._reopen_wanted = False
        try:
            sink = Sink(_open(self._target))
        except OSError as error:
            self._complain(f"the log cannot be opened again and goes on in the old file: {error.strerror}")
            return
        os.close(self._sink.fd)
        self._sink = sink

    @staticmethod
    def _complain(what: str) -> None:
        with contextlib.suppress(OSError):  # standard error itself is what does not take lines
            if sys.stderr is not None:
                Sink(sys.stderr.fileno()).put(f"heliograph: {what}".encode())


def log_to(settings: LogSettings, level: int = logging.INFO) -> Callable[[], None]:
    """Everything that is logged from now on goes there; what opens a file anew is returned, and is done on SIGHUP as
    long as nobody else sees to that. Raises LogTargetError."""
    try:
        output = LogOutput(settings.target)
    except OSError as error:
        raise LogTargetError(f"cannot open the log {settings.target}: {error.strerror}") from error
    is_file = settings.target not in _STREAMS
    if is_file:
        signal.signal(signal.SIGHUP, lambda *_: output.reopen())
    structlog.configure(
        processors=processors(settings.format, is_terminal=output.is_terminal),
        wrapper_class=_bound_logger(level),
        logger_factory=lambda *_: output,
        cache_logger_on_first_use=True,
    )
    return output.reopen if is_file else lambda: None


class _Direct(structlog.BoundLoggerBase):
    """`info` in one step. structlog's own hands all fields on through three, and every tool call leaves such a line."""

    def info(self, event: str, **fields: Any) -> None:
        line: Any = {**self._context, **fields, "event": event}
        try:
            for processor in self._processors:
                line = processor(self._logger, "info", line)
        except structlog.DropEvent:
            return
        self._logger.info(line)


def _bound_logger(level: int) -> type[structlog.typing.BindableLogger]:
    filtering = structlog.make_filtering_bound_logger(level)
    return type("Logger", (_Direct, filtering), {}) if level <= logging.INFO else filtering


def processors(form: str, *, is_terminal: bool) -> list[structlog.typing.Processor]:
    chosen = ("pretty" if is_terminal else "json") if form == "auto" else form
    if chosen == "json":
        return [_json_line]
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    # With every text quoted as Python does it: neither a line break nor a terminal's control codes get through.
    # And with plain tracebacks: those of rich, which structlog takes where it finds it, show local variables.
    console = structlog.dev.ConsoleRenderer(
        colors=is_terminal, repr_native_str=True, exception_formatter=structlog.dev.plain_traceback
    )
    return [structlog.processors.add_log_level, stamp, console, _one_line]


def _json_line(_: object, level: str, event: structlog.typing.EventDict) -> bytes:
    """JSON has no raw line breaks. What msgspec does not encode (lone surrogates) the slower one does."""
    seconds, ns = divmod(time.time_ns(), 1_000_000_000)
    event["level"], event["timestamp"] = level, f"{_second(seconds)}.{ns // 1000:06d}Z"
    try:
        return _encode(event)
    except ValueError:
        return json.dumps(event, default=_type_name).encode()


@lru_cache(1)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _type_name(value: object) -> str:
    return f"<{type(value).__qualname__}>"


_encode = msgspec.json.Encoder(enc_hook=_type_name).encode


def _one_line(_: object, __: str, text: structlog.typing.EventDict) -> bytes:
    return str(text).replace("\r", "\\r").replace("\n", "\\n").encode(errors="backslashreplace")


def _open(target: str) -> int:
    if target not in _STREAMS:
        return os.open(target, _APPEND, mode=0o600)
    stream = _STREAMS[target]()
    # A process started without the stream has something else under its number by now: the database, perhaps.
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC) if stream is None else stream.fileno()
