"""A `resume` in frames that fit: every outcome is in it, results as far as there is room."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from actors.device.resume_pages import OUTCOMES_MAX, resume_frames
from schemas.errors import TEXT_CHARS_MAX, Code, envelope
from schemas.frames import FRAME_BYTES_MAX, BadFrame, Outcome, Resume, Side, decode, encode
from tests.actors.device.node import JOURNAL, cid, result_of

LONG_ERROR = envelope(Code.INTERNAL, "m" * TEXT_CHARS_MAX, "f" * TEXT_CHARS_MAX)


def done(number: int, result: Any = UNSET) -> Outcome:
    return Outcome(in_reply_to=cid(number), ok=True, result=result, begun=True)


def failed(number: int) -> Outcome:
    return Outcome(in_reply_to=cid(number), ok=False, error=LONG_ERROR, begun=True)


def pages(outcomes: list[Outcome], running: list[str] | None = None) -> list[Resume]:
    frames = resume_frames(JOURNAL, cid(9), outcomes, running or [], lambda: cid(0))
    for frame in frames:
        data = encode(frame)
        assert len(data) <= FRAME_BYTES_MAX
        assert not isinstance(decode(data, Side.NODE), BadFrame)
        assert (frame.journal_id, frame.last_cmd, frame.running) == (JOURNAL, cid(9), running or [])
    assert [frame.more for frame in frames] == [True] * (len(frames) - 1) + [None]
    return frames


def test_nothing_to_report_is_one_frame() -> None:
    assert [frame.outcomes for frame in pages([])] == [[]]


def test_what_fits_is_reported_whole() -> None:
    outcomes = [done(n, result_of()) for n in range(OUTCOMES_MAX)]
    assert [frame.outcomes for frame in pages(outcomes)] == [outcomes]


def test_one_outcome_more_than_a_frame_lists_needs_another_frame() -> None:
    frames = pages([done(n) for n in range(OUTCOMES_MAX + 1)])
    assert [len(frame.outcomes) for frame in frames] == [OUTCOMES_MAX, 1]


def test_results_are_left_out_before_outcomes_are_moved_to_another_frame() -> None:
    big = {"message": "x" * 1024}
    frames = pages([done(n, big) for n in range(OUTCOMES_MAX)])
    assert len(frames) == 1
    kept = [outcome.result is not UNSET for outcome in frames[0].outcomes]
    assert 50 < sum(kept) < OUTCOMES_MAX
    assert kept == sorted(kept), "the oldest results go first"


def test_a_result_that_fits_no_frame_is_left_out() -> None:
    (frame,) = pages([done(1, {"message": "x" * FRAME_BYTES_MAX}), done(2, result_of())])
    assert [outcome.result for outcome in frame.outcomes] == [UNSET, result_of()]


def test_long_errors_fill_frames_by_bytes() -> None:
    outcomes = [failed(n) for n in range(OUTCOMES_MAX)]
    frames = pages(outcomes)
    assert len(frames) > 1
    assert [outcome for frame in frames for outcome in frame.outcomes] == outcomes


def test_running_commands_stand_in_every_frame() -> None:
    assert len(pages([failed(n) for n in range(1200)], [cid(5000 + n) for n in range(1000)])) > 3


@given(st.lists(st.one_of(st.none(), st.integers(0, 3000), st.just("failed")), max_size=700))
@settings(deadline=None)
def test_every_outcome_is_reported_once_and_in_order(shapes: list[int | str | None]) -> None:
    outcomes = [
        failed(n) if shape == "failed" else done(n, {"m": "x" * shape} if isinstance(shape, int) else UNSET)
        for n, shape in enumerate(shapes)
    ]
    reported = [outcome for frame in pages(outcomes) for outcome in frame.outcomes]
    assert [outcome.in_reply_to for outcome in reported] == [outcome.in_reply_to for outcome in outcomes]
    for told, known in zip(reported, outcomes, strict=True):
        assert told.result in (UNSET, known.result)
        assert (told.ok, told.error, told.begun) == (known.ok, known.error, known.begun)
