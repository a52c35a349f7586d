"""How far a deploy is: a bar on a terminal, a line for each file elsewhere, nothing where a document is wanted."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gateway.commands.parsing import printable
from gateway.commands.site_plan_rules import Plan, Upload
from gateway.commands.site_upload import Progress

if TYPE_CHECKING:
    import rich.progress


@contextmanager
def shown(plan: Plan, *, is_quiet: bool) -> Iterator[Progress]:
    if is_quiet:
        yield _Quiet()
    elif sys.stdout is None or not sys.stderr.isatty() or not plan.uploads:
        yield _Lines()
    else:
        with _bar(plan) as bar:
            yield bar


class _Quiet:
    def sent(self, count: int) -> None:
        pass

    def uploaded(self, upload: Upload) -> None:
        pass


class _Lines:
    def __init__(self) -> None:
        self._lock = threading.Lock()

    def sent(self, count: int) -> None:
        pass

    def uploaded(self, upload: Upload) -> None:
        with self._lock:
            print(f"uploaded {printable(upload.path)}", flush=True)


class _Bar:
    def __init__(self, progress: "rich.progress.Progress", task: "rich.progress.TaskID") -> None:
        self._progress = progress
        self._task = task

    def sent(self, count: int) -> None:
        self._progress.advance(self._task, count)

    def uploaded(self, upload: Upload) -> None:
        self._progress.console.print(f"uploaded {printable(upload.path)}", markup=False, highlight=False)


@contextmanager
def _bar(plan: Plan) -> Iterator[Progress]:
    # Here, because this takes longer to import than a small deploy does in all.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"{len(plan.uploads)} files", total=sum(one.size for one in plan.uploads) or None)
        yield _Bar(progress, task)
