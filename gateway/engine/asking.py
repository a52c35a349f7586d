"""Several things at once, for a task that waits for all of them."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import trio

from gateway.engine.link import NO_HEADERS, Answer, Link, NoAnswer

_T = TypeVar("_T")


async def ask_all(
    link: Link, questions: Sequence[tuple[str, bytes, Mapping[str, str]]], timeout_s: float
) -> list[Answer]:
    """The answers, in the order of the questions. A cancelled caller stops waiting: what was sent stays sent."""
    answers: list[Answer] = [NoAnswer.NOT_SENT] * len(questions)
    unanswered = len(questions)
    all_answered = trio.Event()

    def note(number: int, answer: Answer) -> None:
        nonlocal unanswered
        answers[number] = answer
        unanswered -= 1
        if unanswered == 0:
            all_answered.set()

    for number, (subject, data, headers) in enumerate(questions):
        link.ask(subject, data, headers, timeout_s, partial(note, number))
    if questions:
        await all_answered.wait()
    return answers


def plain(subject: str, data: bytes) -> tuple[str, bytes, Mapping[str, str]]:
    """A question without headers."""
    return subject, data, NO_HEADERS


def batched(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """As many at a time."""
    return (items[begin : begin + size] for begin in range(0, len(items), size))


async def each_of(items: Iterable[str], work: Callable[[str], Awaitable[None]], at_once: int) -> None:
    """Do the work for each, so many at the same time. The first exception ends it, as what it is."""
    waiting = list(items)
    if len(waiting) == 1:
        await work(waiting[0])
        return
    waiting.reverse()
    failures: list[Exception] = []

    async def take() -> None:
        try:
            while waiting:
                await work(waiting.pop())
        except Exception as failure:
            failures.append(failure)
            waiting.clear()

    async with trio.open_nursery() as nursery:
        for _ in range(min(at_once, len(waiting))):
            nursery.start_soon(take)
    if failures:
        raise failures[0]
