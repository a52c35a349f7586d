"""What comes of a check: passed, failed, or not tried, with what was expected and what was seen.

Inside a check these are exceptions, as in a test, so that a check reads as the exchange that it is; `Check.tried`
takes them. Words are ours alone: types of frames, codes and numbers. Nothing that a node wrote is in them.
"""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_TRIED = "not tried"


class Broken(Exception):  # noqa: N818  # what the node did to a rule, not what went wrong in us
    """The node broke a rule: the check fails."""

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(f"expected {expected}; saw {seen}")
        self.expected = expected
        self.seen = seen


class NotApplicable(Exception):  # noqa: N818
    """This node, or the way the kit was started, has nothing that the check is about."""


class Blocked(Exception):  # noqa: N818
    """The check is about this node, and could not be tried: nothing is proved."""


@dataclass(frozen=True, slots=True)
class Verdict:
    outcome: Outcome
    expected: str = ""  # of a failed one
    seen: str = ""
    why: str = ""  # of one that was not tried
    is_open: bool = False  # not tried, although it should have been: the node is not proved to conform

    @classmethod
    def of(cls, end: Broken | NotApplicable | Blocked | None) -> "Verdict":
        match end:
            case Broken():
                return cls(Outcome.FAILED, expected=end.expected, seen=end.seen)
            case NotApplicable() | Blocked():
                return cls(Outcome.NOT_TRIED, why=str(end), is_open=isinstance(end, Blocked))
        return cls(Outcome.PASSED)
