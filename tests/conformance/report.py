"""What a run of the suite found, against what was expected: a table for people, a page for the documentation."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.conformance.suite import Outcome

VERSIONS = ("2025-06-18", "2025-11-25", "2026-07-28")
EXTENSION = "extension"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "mcp-conformance.md"

_SKILLS = "The extension `io.modelcontextprotocol/skills` is not offered: a gateway to devices has no skills to hand out."
_TASKS = (
    "The extension `io.modelcontextprotocol/tasks` is not offered: a command to a device is answered or fails within "
    "the time that its capability states, so no call outlives its request."
)

# Scenarios that are run all the same, and must not pass: if one does, its line here is wrong.
NOT_APPLICABLE: dict[str, str] = {
    **dict.fromkeys((f"sep-2640-skills-{what}" for what in ("directory", "enumeration", "manifest")), _SKILLS),
    **dict.fromkeys(
        (
            "tasks-lifecycle",
            "tasks-capability-negotiation",
            "tasks-wire-fields",
            "tasks-request-state-removal",
            "tasks-mrtr-input",
            "tasks-request-headers",
            "tasks-dispatch-and-envelope",
            "tasks-status-notifications",
            "tasks-required-task-error",
            "tasks-mrtr-composition",
        ),
        _TASKS,
    ),
}


class Report:
    def __init__(self, scenarios: Mapping[str, list[str]]) -> None:
        self._scenarios = scenarios
        self._words: dict[tuple[str, str], str] = {}
        self.problems: list[str] = [
            f"{name} is said not to apply, but there is no such scenario" for name in NOT_APPLICABLE if name not in scenarios
        ]

    def of_version(self, version: str) -> list[str]:
        return [name for name, versions in self._scenarios.items() if version in versions]

    def add(self, version: str, outcomes: Mapping[str, Outcome]) -> None:
        for name in self.of_version(version):
            outcome = outcomes.get(name, Outcome(0, ("it did not run",)))
            if name in NOT_APPLICABLE:
                self._words[name, version] = "FAIL" if outcome.is_clean else "n/a"
                if outcome.is_clean:
                    self.problems.append(f"{name} ({version}) passes, but is said not to apply")
                continue
            self._words[name, version] = "pass" if outcome.is_clean else "FAIL"
            if not outcome.is_clean:
                why = outcome.complaints or ("no check passed",)
                self.problems.append(f"{name} ({version})\n     " + "\n     ".join(why))

    def table(self) -> str:
        width = max(map(len, self._scenarios))
        columns = (*VERSIONS, EXTENSION)
        lines = [" " * width + "".join(f"  {column:>10}" for column in columns)]
        lines += [
            f"{name:<{width}}" + "".join(f"  {self._words.get((name, column), '-'):>10}" for column in columns)
            for name in self._scenarios
        ]
        lines += ["", *(f"n/a  {name}: {reason}" for name, reason in NOT_APPLICABLE.items())]
        return "\n".join(lines)

    def summary(self) -> str:
        counts = Counter(self._words.values())
        return f"{counts['pass']} passed, {counts['n/a']} not applicable, {len(self.problems)} failed"

    def page(self) -> str:
        raise NotImplementedError
