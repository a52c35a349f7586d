"""Uploads of a site, a few at a time: threads that take the next one until all are done or one has failed for good.

What a later attempt may mend is tried again (`site_plan_rules.wait_s`). Ctrl-C ends all of them at once; the service
keeps nothing of a file that did not come whole, so the run can be repeated.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from gateway.commands.parsing import CommandError
from gateway.commands.project_client import KeptService, ProjectApi
from gateway.commands.site_folder import PIECE_BYTES, opened
from gateway.commands.site_plan_rules import UNREACHABLE, Upload, wait_s
from gateway.commands.space_client import SpaceRefusedError, UnreachableError

AT_A_TIME = 4  # uploads; the others wait

T = TypeVar("T")


class Progress(Protocol):
    """Told from several threads."""

    def sent(self, count: int) -> None:
        """Bytes; of an upload that has to begin again, as many less."""

    def uploaded(self, upload: Upload) -> None: ...


class Uploads:
    def __init__(
        self, make_service: Callable[[], KeptService], bearer: str, project_id: str, progress: Progress
    ) -> None:
        self._make_service = make_service
        self._bearer = bearer
        self._project_id = project_id
        self._progress = progress
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        self._is_over = threading.Event()

    def run(self, uploads: Sequence[Upload], at_a_time: int = AT_A_TIME) -> None:
        """Returns when all are there. Raises what the first failure was: CommandError, UploadRefusedError."""
        waiting = iter(uploads)
        services = [self._make_service() for _ in range(min(at_a_time, len(uploads)))]
        threads = [threading.Thread(target=self._work, args=(one, waiting), daemon=True) for one in services]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException:  # Ctrl-C
            self._is_over.set()
            for service in services:
                service.stop()
            raise
        if self._failure is not None:
            raise self._failure

    def _work(self, service: KeptService, waiting: Iterator[Upload]) -> None:
        api = ProjectApi(service, self._bearer)
        try:
            while not self._is_over.is_set():
                with self._lock:
                    upload = next(waiting, None)
                if upload is None:
                    return
                self._upload(api, upload)
        except Exception as error:  # the others need not go on: it is said once, by whoever waits for all
            with self._lock:
                self._failure = self._failure or error
            self._is_over.set()
        finally:
            service.close()

    def _upload(self, api: ProjectApi, upload: Upload) -> None:
        def attempt() -> str | None:
            if self._is_over.is_set():  # while it waited
                return None
            sent = _Sent(self._progress)
            try:
                document = api.put(self._project_id, upload.path, _pieces(upload, sent), upload.size)
            except (SpaceRefusedError, UnreachableError):
                sent.take_back()
                raise
            return str(document["sha256"])

        try:
            sha256 = patiently(attempt, self._is_over.wait)
        except SpaceRefusedError as refused:
            raise UploadRefusedError(upload.path, refused) from None
        if sha256 is not None and sha256 != upload.sha256:
            raise FileChangedError(upload.path)
        if sha256 is not None:
            self._progress.uploaded(upload)


def patiently(attempt: Callable[[], T], pause: Callable[[float], object]) -> T:
    """Again and again, where a later attempt may succeed. Raises SpaceRefusedError, UnreachableError."""
    failures = 0
    while True:
        failures += 1
        try:
            return attempt()
        except SpaceRefusedError as refused:
            pause_s = wait_s(refused.word, refused.retry_after_ms, failures)
            if pause_s is None:
                raise
        except UnreachableError:
            pause_s = wait_s(UNREACHABLE, None, failures)
            if pause_s is None:
                raise
        pause(pause_s)


class UploadRefusedError(Exception):
    """The service does not take this file. The text says which, why and what to do."""

    def __init__(self, path: str, refused: SpaceRefusedError) -> None:
        super().__init__(f"{path}: {refused}")


class FileChangedError(CommandError):
    def __init__(self, path: str) -> None:
        super().__init__(f"{path} changed while it was sent: try again once nobody writes to it")


class _Sent:
    """How much of one upload was sent so far."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._count = 0

    def add(self, count: int) -> None:
        self._count += count
        self._progress.sent(count)

    def take_back(self) -> None:
        self._progress.sent(-self._count)


def _pieces(upload: Upload, sent: _Sent) -> Iterator[bytes]:
    """As many bytes as were promised, however the file changes meanwhile."""
    if isinstance(upload.source, bytes):
        sent.add(len(upload.source))
        yield upload.source
        return
    left = upload.size
    try:
        with opened(upload.source) as file:
            while left and (piece := file.read(min(PIECE_BYTES, left))):
                left -= len(piece)
                sent.add(len(piece))
                yield piece
    except OSError as error:
        raise CommandError(f"cannot read {upload.source}: {error.strerror}") from None
    if left:
        raise FileChangedError(upload.path)
