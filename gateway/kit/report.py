"""What the kit says of a run: a line for each check, and a summary; or the same as JSON. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from actors.kit.check import Check
from actors.kit.verdicts import Outcome, Verdict

_MARKS = {Outcome.PASSED: "ok  ", Outcome.FAILED: "FAIL", Outcome.NOT_TRIED: "-   "}
_NAME_WIDTH = 36


@dataclass(frozen=True, slots=True)
class Tried:
    check: Check
    verdict: Verdict
    seconds: float


def place(check: Check) -> str:
    """Where in the reference."""
    return f"§{check.section}" if check.section[0].isdigit() else f"App. {check.section}"


def lines(tried: Tried) -> list[str]:
    check, verdict = tried.check, tried.verdict
    head = f"{_MARKS[verdict.outcome]}  {place(check):7} {check.name:{_NAME_WIDTH}}"
    match verdict.outcome:
        case Outcome.PASSED:
            return [f"{head} {tried.seconds:6.1f} s"]
        case Outcome.NOT_TRIED:
            return [f"{head} not tried: {verdict.why}"]
    return [
        f"{head} {tried.seconds:6.1f} s",
        f"      the rule: {check.must}",
        f"      expected: {verdict.expected}",
        f"      seen:     {verdict.seen}",
    ]


def conforms(run: Sequence[Tried]) -> bool:
    """Something was tried, nothing failed, and nothing that is about this node is open."""
    is_tried = any(one.verdict.outcome is Outcome.PASSED for one in run)
    return is_tried and not any(one.verdict.outcome is Outcome.FAILED or one.verdict.is_open for one in run)


def summary(run: Sequence[Tried]) -> str:
    counts = {outcome: sum(one.verdict.outcome is outcome for one in run) for outcome in Outcome}
    text = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome)
    if conforms(run):
        return f"{text}. All rules that were tried hold."
    if counts[Outcome.FAILED]:
        return f"{text}. The node does not conform to node-wire.v2."
    if any(one.verdict.is_open for one in run):
        return f"{text}. Nothing failed, but not everything could be tried."
    return f"{text}. Nothing was tried."


def document(node_id: str, run: Sequence[Tried]) -> dict[str, Any]:
    return {
        "node_id": node_id,
        "conforms": conforms(run),
        **{outcome.replace(" ", "_"): sum(one.verdict.outcome is outcome for one in run) for outcome in Outcome},
        "checks": [
            {
                "name": one.check.name,
                "section": one.check.section,
                "must": one.check.must,
                "outcome": one.verdict.outcome,
                "expected": one.verdict.expected,
                "seen": one.verdict.seen,
                "why": one.verdict.why,
                "seconds": round(one.seconds, 3),
            }
            for one in run
        ],
    }
