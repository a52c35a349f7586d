"""`heliograph serve --processes N`: a parent that serves nobody, and N gateways as its children.

The children share ports and data folder. The first is started alone: what keeps a gateway from starting is said once.
After all of them have listened, one that cannot start is tried again and again, and the others go on.
One that ends is started again, within the restart intensity; past it all of them stop. SIGTERM and Ctrl-C stop them,
SIGHUP is for each of them, and SIGUSR2 replaces them one after the other, as an upgrade needs it. A parent that is
killed takes them with it: each holds one end of a socket pair, and stops in order when the other end goes.
"""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import msgspec
import structlog
import trio

from actors.supervision.restart_rules import GiveUp, RestartIntensity, decide
from gateway.main.clock import now
from gateway.main.data_folder import RUNNING_FILE, DataFolder
from gateway.main.running_note import RunningNote
from gateway.main.server import CannotListenError
from gateway.main.settings import Address, Settings
from gateway.net.listening import shared_sockets

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

STOP_S_MAX = 30.0  # from asking a child to stop to killing it; its last appends may take as long as NATS does
READY_S_MAX = 60.0  # for a child to listen; then it is killed, which counts as a crash
_CANNOT_START = 2
_LINE_BYTES_MAX = 4_096
_LOOK_S = 0.02
# -P: whatever lies in the current folder is none of its modules
PROGRAM = (sys.executable, "-P", "-m", "gateway.commands.cli")
_FIX = "correct what it says on standard error; it is tried again by itself, the other gateways serve meanwhile"


class Ready(msgspec.Struct, frozen=True):
    """What a child says once it listens."""

    http: str
    devices: str
    admin: str


class StoppedError(Exception):
    """The children could not go on; the text is for a person, or empty if a child has said it."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text)
        self.code = code


@dataclass(slots=True, eq=False)
class _Child:
    number: int
    process: trio.Process
    ours: trio.SocketStream
    is_asked: bool = False

    def ask(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)


class Processes:
    """Run it once."""

    def __init__(
        self,
        settings: Settings,
        arguments: Sequence[str],
        say: Callable[[Ready], None] | None = None,
        *,
        program: Sequence[str] = PROGRAM,
        intensity: RestartIntensity | None = None,
    ) -> None:
        """`arguments` are those of `serve`, as somebody gave them. `say` is called once, when all of them listen."""
        self._tell = self._say if say is None else say
        self._settings = settings
        self._arguments = [*program, *arguments]
        self._intensity = RestartIntensity() if intensity is None else intensity
        self._children: dict[int, _Child] = {}
        self._ready: dict[int, Ready] = {}  # what each has said first
        self._has_told = False
        self._is_replacing = False
        self._spawning = trio.Lock()  # whoever has it knows all children
        self._failed: StoppedError | None = None
        self._stop = trio.Event()
        self._crashes_s: tuple[float, ...] = ()
        self._nursery: trio.Nursery

    async def run(self) -> None:
        """Until it is asked to stop. Raises StoppedError, FolderError, CannotListenError."""
        with DataFolder.hold(self._settings.data_path, now().wall_ms, shares=True) as folder, ExitStack() as ports:
            await self._reserve(ports)
            try:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    nursery.start_soon(self._hear_signals)
                    nursery.start_soon(self._start_all)
                    await self._stop.wait()
                    await self._end_all()
                    nursery.cancel_scope.cancel()
            finally:
                if not folder.has_others():
                    RunningNote(folder.path / RUNNING_FILE).remove()
        if self._failed is not None:
            raise self._failed

    async def _reserve(self, ports: ExitStack) -> None:
        """Find out whether the ports can be had, and which ones they are where any will do."""
        for flag, text in (("--http", self._settings.http.listen), ("--devices", self._settings.devices.listen)):
            address = Address.parse(text)
            try:
                sockets = await shared_sockets(address.host, address.port)
            except OSError as error:
                raise CannotListenError(
                    f"cannot listen on {text} ({error}); choose another address with {flag}"
                ) from None
            for sock in sockets:
                ports.callback(sock.close)
            self._arguments += [flag, f"{address.host}:{sockets[0].getsockname()[1]}"]

    def _say(self, ready: Ready) -> None:
        out = sys.stderr if self._settings.log.target == "stdout" else sys.stdout
        admin = "" if ready.admin == ready.http else f"   operators   {ready.admin}"
        count = self._settings.engine.processes
        print(f"agents   {ready.http}   nodes   {ready.devices}{admin}   processes   {count}", file=out, flush=True)

    async def _start_all(self) -> None:
        """One after the other, and say so once all of them listen."""
        ready = None
        for number in range(self._settings.engine.processes):
            ready = await self._start(number)
            while ready is None and not self._stop.is_set():  # it ended: its successor, if it gets one, may do better
                await trio.sleep(_LOOK_S)
                ready = self._ready.get(number)
        if ready is not None and not self._stop.is_set():
            self._has_told = True
            self._tell(ready)

    # ---- children ---------------------------------------------------------------------------------------------------

    async def _start(self, number: int) -> Ready | None:
        """Start one and wait until it listens; None when it ended first, took too long, or none is to start."""
        async with self._spawning:
            if self._stop.is_set():
                return None
            child = await self._spawn(number)
        with trio.move_on_after(READY_S_MAX) as patience:
            ready = await _ready(child.ours)
        if patience.cancelled_caught:
            child.ask(signal.SIGKILL)
            return None
        if ready is not None:
            self._ready[number] = ready
        return ready

    async def _spawn(self, number: int) -> _Child:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await trio.lowlevel.open_process(
                [*self._arguments, "--child", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # no Ctrl-C of a terminal reaches it: its parent tells it
            )
        child = _Child(number, process, trio.SocketStream(trio.socket.from_stdlib_socket(ours)))
        self._children[number] = child
        self._nursery.start_soon(self._watch, child)
        return child

    async def _watch(self, child: _Child) -> None:
        """Wait for its end, and start another in its place."""
        code = await child.process.wait()
        await child.ours.aclose()
        if self._children.get(child.number) is child:  # and not its successor
            del self._children[child.number]
        if self._stop.is_set() or child.is_asked:
            return
        if code == _CANNOT_START and not self._has_told:
            self._fail(StoppedError(_CANNOT_START))
        elif code == _CANNOT_START:
            pause_s = self._intensity.window_s / self._intensity.restarts_max  # no more often than crashes may be
            log.error("gateway_process_cannot_start", number=child.number, again_s=pause_s, advice=_FIX)
            await trio.sleep(pause_s)
        elif code != 0:
            log.error("gateway_process_ended", number=child.number, code=code)
            decision = decide(self._crashes_s, trio.current_time(), self._intensity)
            if isinstance(decision, GiveUp):
                self._fail(
                    StoppedError(1, f"gateways ended {decision.crashes} times within {self._intensity.window_s:g} s")
                )
                return
            self._crashes_s = decision.crashes_s
        await self._start(child.number)

    def _fail(self, error: StoppedError) -> None:
        self._failed = self._failed or error
        self._stop.set()

    async def _end_all(self) -> None:
        async with self._spawning:  # one that is being started is asked, too; none is started after it
            for child in self._children.values():
                child.ask(signal.SIGTERM)
        with trio.CancelScope(shield=True), trio.move_on_after(STOP_S_MAX):
            while self._children:  # noqa: ASYNC110  # each has its own watcher
                await trio.sleep(_LOOK_S)
        for child in list(self._children.values()):
            log.error("gateway_process_killed", number=child.number)
            child.ask(signal.SIGKILL)
        with trio.CancelScope(shield=True), trio.move_on_after(1):
            while self._children:  # noqa: ASYNC110  # as above
                await trio.sleep(_LOOK_S)

    # ---- signals ----------------------------------------------------------------------------------------------------

    async def _hear_signals(self) -> None:
        wanted = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
        async with trio.open_nursery() as nursery:
            with trio.open_signal_receiver(*wanted) as signals:
                async for number in signals:
                    if number == signal.SIGHUP:
                        for child in self._children.values():
                            child.ask(signal.SIGHUP)
                    elif number == signal.SIGUSR2:
                        nursery.start_soon(self._replace_all)
                    else:
                        self._stop.set()

    async def _replace_all(self) -> None:
        """Only one at a time: two of them would start two successors for each."""
        if self._is_replacing:
            log.warning("gateway_replacement_ignored", advice="wait until the one under way is done")
            return
        self._is_replacing = True
        try:
            for number in sorted(self._children):
                child = self._children.get(number)
                if child is not None and not await self._replace(child):
                    break
        finally:
            self._is_replacing = False

    async def _replace(self, child: _Child) -> bool:
        """Whether its successor listens; where it does not, those that are left stay as they are."""
        if self._stop.is_set():
            return False
        child.is_asked = True
        child.ask(signal.SIGTERM)
        with trio.move_on_after(STOP_S_MAX):
            await child.process.wait()
        child.ask(signal.SIGKILL)
        await child.process.wait()
        if await self._start(child.number) is not None:
            return True
        if not self._stop.is_set():
            log.error("gateway_replacement_stopped", number=child.number, advice="correct it, then send SIGUSR2 again")
        return False


async def _ready(ours: trio.SocketStream) -> Ready | None:
    said = bytearray()
    while b"\n" not in said and len(said) < _LINE_BYTES_MAX:
        try:
            more = await ours.receive_some()
        except (trio.BrokenResourceError, trio.ClosedResourceError):  # its watcher closes it
            return None
        if not more:
            return None
        said += more
    try:
        return msgspec.json.decode(bytes(said), type=Ready)
    except msgspec.MsgspecError:
        return None
