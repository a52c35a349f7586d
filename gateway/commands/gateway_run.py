"""Running a gateway from the command line: what a person can mend becomes one line and an exit code."""

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from actors.log.store import CannotOpenError, StoreFailedError
from actors.supervision.crash_report import first_leaf
from actors.supervision.errors import ProcessMustStopError
from gateway.commands.parsing import complain
from gateway.main.data_folder import FolderError
from gateway.main.server import CannotListenError
from gateway.main.settings import SettingsError
from gateway.observe.tracing import TracingUnavailableError


def run_gateway(main: Callable[..., Awaitable[None]], *arguments: Any) -> int:
    """0 it stopped when asked, 1 it had to stop, 2 it could not start."""
    try:
        trio.run(main, *arguments)
    except Exception as exc:
        error = first_leaf(exc)
        if isinstance(error, (SettingsError, FolderError, CannotOpenError, CannotListenError, TracingUnavailableError)):
            return complain(str(error))
        if isinstance(error, (ProcessMustStopError, StoreFailedError)):
            print(f"heliograph: {error}", file=sys.stderr)
            return 1
        raise
    return 0
