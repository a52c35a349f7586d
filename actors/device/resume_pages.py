"""A `resume` cut into frames that fit (device wire §5.11, §7.3). Pure.

Every outcome is reported; results are what is left out first. So outcomes are laid out without their results, 500 a
frame or as many as fit, and then each frame takes back as many results as it has room for, the newest first: their
callers are the ones that may still wait. `journal_id`, `last_cmd` and `running` stand in every frame.

A gateway closes a `resume` of more than 32 frames or 10,000 outcomes with 4400, so none is ever made: the oldest
outcomes are left out. The memory (`outcomes`) holds no more than fits, unless somebody makes the error texts longer.
"""

from collections.abc import Callable, Sequence

import msgspec

from schemas.frames import FRAME_BYTES_MAX, WIRE_VERSION, Outcome, Resume, encode
from schemas.registry import REGISTRY

_SCHEMA = REGISTRY[f"node.wire.resume@{WIRE_VERSION}"].document
OUTCOMES_MAX: int = _SCHEMA["properties"]["outcomes"]["maxItems"]  # of one frame
RESUME_FRAMES_MAX = 32
RESUME_OUTCOMES_MAX = 10_000  # in all frames


def resume_frames(
    journal_id: str,
    last_cmd: str | None,
    outcomes: Sequence[Outcome],
    running: list[str],
    new_id: Callable[[], str],
) -> list[Resume]:
    """`outcomes` in `msg_id` order."""

    empty = Resume(msg_id=new_id(), journal_id=journal_id, last_cmd=last_cmd, outcomes=[], running=running, more=True)
    empty_bytes = len(encode(empty))

    def size(outcome: Outcome) -> int:
        return len(encode(msgspec.structs.replace(empty, outcomes=[outcome]))) - empty_bytes + 1  # and a comma

    pages: list[list[Outcome]] = [[]]
    room = FRAME_BYTES_MAX - empty_bytes
    rooms = [room]
    for outcome in outcomes[-RESUME_OUTCOMES_MAX:]:
        bare_bytes = size(_bare(outcome))
        if len(pages[-1]) == OUTCOMES_MAX or bare_bytes > rooms[-1]:
            pages.append([])
            rooms.append(room)
        pages[-1].append(outcome)
        rooms[-1] -= bare_bytes
    newest = list(zip(pages, rooms, strict=True))[-RESUME_FRAMES_MAX:]
    filled = [_with_results(page, room, size) for page, room in newest]
    frames = [msgspec.structs.replace(empty, msg_id=new_id(), outcomes=page) for page in filled]
    frames[-1] = msgspec.structs.replace(frames[-1], more=None)
    return frames


def _with_results(page: list[Outcome], room: int, size: Callable[[Outcome], int]) -> list[Outcome]:
    newest_first = []
    for outcome in reversed(page):
        extra_bytes = size(outcome) - size(_bare(outcome)) if outcome.result is not msgspec.UNSET else 0
        newest_first.append(outcome if extra_bytes <= room else _bare(outcome))
        room -= extra_bytes if extra_bytes <= room else 0
    return newest_first[::-1]


def _bare(outcome: Outcome) -> Outcome:
    return msgspec.structs.replace(outcome, result=msgspec.UNSET)
