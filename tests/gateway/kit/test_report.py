"""What the kit prints, and when a node conforms."""

import json

import pytest

from actors.kit.check import Check
from actors.kit.table import CHECKS, chosen, unknown
from actors.kit.verdicts import Outcome, Verdict
from gateway.kit.report import Tried, conforms, document, lines, place, summary

CHECK = next(check for check in CHECKS if check.name == "echo")
PASSED = Verdict(Outcome.PASSED)
FAILED = Verdict(Outcome.FAILED, expected="this", seen="that")
LEFT_OUT = Verdict(Outcome.NOT_TRIED, why="no need")
OPEN = Verdict(Outcome.NOT_TRIED, why="no session", is_open=True)


def run(*verdicts: Verdict) -> list[Tried]:
    return [Tried(CHECK, verdict, 1.25) for verdict in verdicts]


@pytest.mark.parametrize(
    ("verdicts", "holds", "words"),
    [
        ((PASSED,), True, "1 passed, 0 failed, 0 not tried. All rules that were tried hold."),
        ((PASSED, LEFT_OUT), True, "1 passed, 0 failed, 1 not tried. All rules that were tried hold."),
        ((PASSED, FAILED, OPEN), False, "1 passed, 1 failed, 1 not tried. The node does not conform to node-wire.v2."),
        ((LEFT_OUT,), False, "0 passed, 0 failed, 1 not tried. Nothing was tried."),
        ((PASSED, OPEN), False, "1 passed, 0 failed, 1 not tried. Nothing failed, but not everything could be tried."),
    ],
)
def test_a_node_conforms_when_nothing_failed_and_nothing_is_open(
    verdicts: tuple[Verdict, ...], holds: bool, words: str
) -> None:
    assert conforms(run(*verdicts)) is holds
    assert summary(run(*verdicts)) == words


def test_a_failure_tells_the_rule_what_was_expected_and_what_was_seen() -> None:
    (head, rule, expected, seen) = lines(Tried(CHECK, FAILED, 1.25))
    assert head.split() == ["FAIL", "App.", "C", "echo", "1.2", "s"]
    assert CHECK.must in rule
    assert expected.endswith("this")
    assert seen.endswith("that")


def test_what_was_not_tried_says_why() -> None:
    assert lines(Tried(CHECK, LEFT_OUT, 0.0))[0].endswith("not tried: no need")


def test_the_document_has_every_check_with_its_outcome() -> None:
    made = json.loads(json.dumps(document("0" * 26, run(PASSED, FAILED, OPEN))))
    assert {name: made[name] for name in ("conforms", "passed", "failed", "not_tried")} == {
        "conforms": False,
        "passed": 1,
        "failed": 1,
        "not_tried": 1,
    }
    assert [check["outcome"] for check in made["checks"]] == ["passed", "failed", "not tried"]
    assert made["checks"][1] == {
        "name": "echo",
        "section": "C",
        "must": CHECK.must,
        "outcome": "failed",
        "expected": "this",
        "seen": "that",
        "why": "",
        "seconds": 1.25,
    }


def test_sections_name_all_checks_below_them() -> None:
    def names(*only: str) -> set[str]:
        return {check.name for check in chosen(only)}

    assert names() == {check.name for check in CHECKS}
    assert names("2.5") == {check.name for check in CHECKS if check.section == "2.5"}
    assert names("2") == {check.name for check in CHECKS if check.section.startswith("2")}
    assert names("5") >= {"survives-a-bad-command", "telemetry"}
    assert names("echo", "A") == {"echo"} | {check.name for check in CHECKS if check.section == "A"}
    assert unknown(["2", "5.1", "echo", "9", "echoes", ""]) == ["9", "echoes", ""]


def test_names_of_checks_are_told_apart_from_sections() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert not {check.name for check in CHECKS} & {check.section for check in CHECKS}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_check_says_its_rule_in_a_sentence(check: Check) -> None:
    assert check.must.endswith(".")
    assert check.must.isprintable()
    assert place(check).startswith(("§", "App. "))
