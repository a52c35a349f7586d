"""Commands that are ended from outside while they write a file."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def cleaned_when_ended() -> Iterator[None]:
    """By a signal as by Ctrl-C: what is half done goes."""

    def leave(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one does not interrupt the cleaning
        raise SystemExit(128 + number)

    is_main = threading.current_thread() is threading.main_thread()
    numbers = [number for number in ENDING if is_main and signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
