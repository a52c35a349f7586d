"""What a run of the suite found, against what was expected: a table for people, a page for the documentation."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from textwrap import fill

from gateway.mcp.views import VIEWS
from tests.clients.installed import list_clients
from tests.conformance.suite import HERE, Outcome

VERSIONS = ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
EXTENSION = "extension"
PAGE = HERE.parents[1] / "docs" / "reference" / "mcp-conformance.md"
_COLUMNS = (*VERSIONS, EXTENSION)
_PACKAGE = "@modelcontextprotocol/conformance"

_TASKS = (
    "`io.modelcontextprotocol/tasks` is not offered: every call of a tool has a deadline, by which it is answered or "
    "has failed, so there is nothing to come back for."
)
_SKILLS = "`io.modelcontextprotocol/skills` is not offered: a gateway to devices has no skills to hand out."
_RESUMING = (
    "Streams cannot be resumed: the gateway would have to keep what it has sent, for clients that may never come back. "
    "It is an option of the older versions, recommended in 2025-11-25 and gone from 2026-07-28."
)

# Scenarios that do not apply, with the reason. They are run all the same: if one passes, its line here is wrong.
NOT_APPLICABLE: dict[str, str] = {
    "server-sse-polling": _RESUMING,
    "sep-2640-skills-directory": _SKILLS,
    "sep-2640-skills-enumeration": _SKILLS,
    "sep-2640-skills-manifest": _SKILLS,
    "tasks-lifecycle": _TASKS,
    "tasks-capability-negotiation": _TASKS,
    "tasks-wire-fields": _TASKS,
    "tasks-request-state-removal": _TASKS,
    "tasks-mrtr-input": _TASKS,
    "tasks-request-headers": _TASKS,
    "tasks-dispatch-and-envelope": _TASKS,
    "tasks-status-notifications": _TASKS,
    "tasks-required-task-error": _TASKS,
    "tasks-mrtr-composition": _TASKS,
}

# What a session of a room is held to as well. It has the room's tools and no fixtures, so what needs one is left out.
ROOM_SCENARIOS = (
    "server-initialize",
    "server-session-lifecycle",
    "server-stateless",
    "ping",
    "tools-list",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
    "http-header-validation",
)
_NEEDS_FIXTURE = "Not testable: server does not list the diagnostic tool"


class Report:
    def __init__(self, scenarios: Mapping[str, list[str]]) -> None:
        """`scenarios` with the versions they are for."""
        self._scenarios = scenarios
        self._words: dict[tuple[str, str], str] = {}
        self.problems: list[str] = [
            f"{name} is said not to apply, but the suite has no such scenario"
            for name in NOT_APPLICABLE
            if name not in scenarios
        ]

    def of_version(self, version: str) -> list[str]:
        return [name for name, versions in self._scenarios.items() if version in versions]

    def add(self, version: str, outcomes: Mapping[str, Outcome], view: str) -> None:
        """What became of all scenarios of this version on one view; it passes if it passes on all of them."""
        for name in self.of_version(version):
            outcome = outcomes.get(name, Outcome(0, ("it did not run",)))
            applies = name not in NOT_APPLICABLE
            word = "FAIL" if applies != outcome.is_clean else "pass" if applies else "n/a"
            if self._words.get((name, version)) != "FAIL":
                self._words[name, version] = word
            if applies and not outcome.is_clean:
                why = outcome.complaints or ("none of its checks passed",)
                self.problems.append("\n     ".join([f"{name} ({version}, {view})", *why]))
            elif outcome.is_clean and not applies:
                self.problems.append(f"{name} ({version}, {view}) passes, though it is said not to apply")

    def of_room(self, version: str) -> list[str]:
        return [name for name in ROOM_SCENARIOS if name in self.of_version(version)]

    def add_room(self, version: str, outcomes: Mapping[str, Outcome]) -> None:
        """The same of a room's session."""
        for name in self.of_room(version):
            outcome = outcomes.get(name, Outcome(0, ("it did not run",)))
            why = [complaint for complaint in outcome.complaints if _NEEDS_FIXTURE not in complaint]
            if why or not outcome.passed:
                why = why or ["none of its checks passed"]
                self.problems.append("\n     ".join([f"{name} ({version}, a room's session)", *why]))

    def add_sign_in(self, outcomes: Mapping[str, Outcome]) -> None:
        """What became of the scenarios of authorization servers. One that was left out has failed."""
        if not outcomes:
            self.problems.append("the suite has no scenarios of authorization servers")
        for name, outcome in outcomes.items():
            if not outcome.is_clean:
                why = outcome.complaints or ("none of its checks passed",)
                self.problems.append("\n     ".join([f"{name} (authorization server)", *why]))

    def table(self) -> str:
        width = max(map(len, self._scenarios))
        lines = [" " * width + "".join(f"  {column:>10}" for column in _COLUMNS)]
        lines += [f"{name:<{width}}" + "".join(f"  {word:>10}" for word in words) for name, words in self._rows()]
        lines += [f"n/a  {', '.join(names)}: {reason}" for reason, names in _by_reason().items()]
        return "\n".join(lines)

    def summary(self) -> str:
        counts = Counter(self._words.values())
        said = f"{counts['pass']} scenarios pass, {counts['n/a']} do not apply"
        return f"{said}, problems: {len(self.problems)}" if self.problems else said

    def page(self) -> str:
        rows = [f"| `{name}` | {' | '.join(words)} |" for name, words in self._rows()]
        reasons = [
            _wrapped(f"- {', '.join(f'`{name}`' for name in names)}: {reason[0].lower()}{reason[1:]}", "  ")
            for reason, names in _by_reason().items()
        ]
        version = json.loads((HERE / "package.json").read_text())["dependencies"][_PACKAGE]
        return _PAGE.format(
            what=_wrapped(_WHAT.format(package=_PACKAGE, version=version)),
            columns=" | ".join(_COLUMNS),
            dashes="|".join(["---"] * (len(_COLUMNS) + 1)),
            rows="\n".join(rows),
            reasons="\n".join(reasons),
            sign_in=_wrapped(_SIGN_IN),
            rooms=_wrapped(_ROOMS.format(names=", ".join(f"`{name}`" for name in ROOM_SCENARIOS))),
            clients=client_table(),
        )

    def _rows(self) -> Iterator[tuple[str, list[str]]]:
        for name in self._scenarios:
            yield name, [self._words.get((name, column), "-") for column in _COLUMNS]


def client_table() -> str:
    """`tests.clients.run` fails when one of these is not so."""
    lines = [["client", *(f"`{view.path}`" for view in VIEWS)], ["---"] * (len(VIEWS) + 1)]
    lines += [[client.title, *["pass"] * len(VIEWS)] for client in list_clients()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _by_reason() -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name, reason in NOT_APPLICABLE.items():
        names.setdefault(reason, []).append(name)
    return names


def _wrapped(text: str, indent: str = "") -> str:
    return fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


_WHAT = (
    "What the official suite, `{package}` {version}, finds. `make conformance` runs it against a whole gateway over "
    "HTTP, on each of its [views](views.md), with a token, one live node, and fixtures from `tests/conformance` next "
    "to the node's own tools and resources. A scenario passes here if it passes on all of them. It brings its own Node "
    "from npm (Linux on x64; elsewhere it takes the one on the PATH), and fails when it finds something else than this "
    "page says; `.venv/bin/python -m tests.conformance.run --write-docs` rewrites the page."
)
_ROOMS = (
    "With the token of an [echo space](spaces.md#9-mcp) `/mcp` has other tools and the same transport. The run holds "
    "such a session to {names}, in each version that they are for. It has no fixtures: what `server-stateless` asks of "
    "diagnostic tools is left out."
)
_SIGN_IN = (
    "The suite's `authorization` command then runs against the gateway's own [authorization server](oauth.md), as a "
    "client with a `client_id`. Its scenarios `authorization-server-metadata-endpoint` and `authorization-code-grant` "
    "pass. A real Chromium opens the page that the suite prints, agrees, and signs in with a passkey of a virtual "
    "authenticator as the owner of a space. Without Chromium the run fails. One recommendation is not followed: the "
    "gateway never fetches a `client_id` that is a URL, so `client_id_metadata_document_supported` is not offered."
)
_PAGE = """\
# MCP conformance

{what}

- **pass**: all that the scenario checks, what the protocol only recommends included.
- **n/a**: it does not apply, for the reason below the table. **-**: it is not of this version.
- The suite's client opens its sessions with 2025-11-25. In the columns of older versions only what the suite sends by
  hand (`server-initialize`, `server-session-lifecycle`) is of that version; all messages are held against its schema.
- Prompts, completion, logging, sampling, elicitation, results that need input, and parameters in headers are in the
  fixtures only: the gateway has none of them today. Their scenarios show that the endpoint carries them.
- Some of them speak before their result, so here answers are event streams; the gateway alone answers with JSON.

| scenario | {columns} |
|{dashes}|
{rows}

## Not applicable
{reasons}

## Sessions of rooms
{rooms}

## The authorization server
{sign_in}

## Clients of the 1.x SDKs
`make conformance` then runs clients that are built on the official SDKs, as most desktop clients are, on each
[view](views.md). Each version is installed from npm or PyPI and runs as its own process (`tests/clients`) against a
whole gateway with four mock nodes, three of them named, a policy, and an upstream with unusual schemas. All are of the
handshake era; the Python SDK 2.x, both eras, is in `make test`. The run fails when one check of one client fails, and
when a client logs a warning.

{clients}

Each checks:
- `initialize`; `tools/list` through all pages, with every `outputSchema` compiled where the SDK does that; calls whose
  structure the SDK checks;
- names within the view's rule (on `/mcp/flat` and `/mcp/fleet` 64 of `A-Za-z0-9_-`), and that the safety class of each
  tool and the `title` of a named node's tool reach the program;
- failures that the model must read: bad arguments, a `subscribe` tool, a capability's rate limit, a node that left, a
  failure of the upstream's own;
- errors that the program gets, with their code: unknown tool, denied by policy, agent's rate, budget, unknown resource;
- `list_changed` when a node leaves and when it is back, of tools or, where the tools stay, of resources only; that the
  node then answers again; resources listed, read, subscribed to, updated;
- on `/mcp/fleet` also `fleet_find` by name, tags, state and kind, in pages; `fleet_node` of a live node, of one that
  left and of one with a sample; calls by a node's name; a name that no node has, as a failure that the model reads.

What they cannot take, and what the gateway therefore does, is in [the MCP endpoint](mcp.md#what-old-clients-take).
"""
