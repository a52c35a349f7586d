"""The crash report: which class, where in our code; never what the exception said."""

import re

import pytest

from actors.supervision.crash_report import CAUSES_MAX, PLACES_MAX, first_leaf, interrupt_in, leaves, report


def raised(exc: BaseException) -> BaseException:
    try:
        raise exc
    except BaseException as caught:
        return caught


def test_a_report_names_the_class_and_the_place_and_never_the_text() -> None:
    causes = report(raised(ValueError("what the device sent")))
    assert [cause["error"] for cause in causes] == ["builtins.ValueError"]
    assert re.fullmatch(r"\['tests/actors/supervision/test_crash_report\.py:\d+ raised'\]", str(causes[0]["at"]))
    assert "device" not in repr(causes)


def test_an_exception_that_was_never_raised_has_no_places() -> None:
    assert report(KeyError("x")) == [{"error": "builtins.KeyError", "at": []}]


def test_a_group_is_reported_leaf_by_leaf() -> None:
    group = ExceptionGroup("a", [ValueError("x"), ExceptionGroup("b", [KeyError("y"), OSError("z")])])
    assert [cause["error"] for cause in report(group)] == [
        "builtins.ValueError",
        "builtins.KeyError",
        "builtins.OSError",
    ]
    assert isinstance(first_leaf(group), ValueError)


def test_a_single_exception_is_its_own_leaf() -> None:
    exc = ValueError("x")
    assert list(leaves(exc)) == [exc]
    assert first_leaf(exc) is exc


def test_what_an_exception_was_raised_from_follows_it() -> None:
    exc = ValueError("x")
    exc.__cause__ = ExceptionGroup("g", [KeyError("y")])
    assert [cause["error"] for cause in report(exc)] == ["builtins.ValueError", "builtins.KeyError"]


def test_the_context_follows_unless_it_was_suppressed() -> None:
    exc = ValueError("x")
    exc.__context__ = KeyError("y")
    assert len(report(exc)) == 2
    exc.__suppress_context__ = True
    assert len(report(exc)) == 1


def test_a_chain_that_bites_its_tail_ends() -> None:
    first, second = ValueError("x"), KeyError("y")
    first.__context__, second.__context__ = second, first
    assert len(report(first)) == 2


def test_a_wide_group_is_reported_up_to_its_bound() -> None:
    assert len(report(ExceptionGroup("g", [ValueError(str(n)) for n in range(3 * CAUSES_MAX)]))) == CAUSES_MAX


def test_a_deep_recursion_is_reported_by_its_innermost_places() -> None:
    def dive(depth: int) -> None:
        if depth == 0:
            raise ValueError
        dive(depth - 1)

    with pytest.raises(ValueError) as caught:  # noqa: PT011, the text is what must not matter
        dive(10 * PLACES_MAX)
    places = report(caught.value)[0]["at"]
    assert isinstance(places, list)
    assert len(places) == PLACES_MAX
    assert all(place.endswith("dive") for place in places)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(1)])
def test_an_interrupt_is_found_inside_nested_groups(interrupt: BaseException) -> None:
    group = BaseExceptionGroup("a", [ValueError("x"), BaseExceptionGroup("b", [interrupt])])
    assert interrupt_in(group) is interrupt


def test_a_group_of_crashes_holds_no_interrupt() -> None:
    assert interrupt_in(ExceptionGroup("a", [ValueError("x")])) is None
