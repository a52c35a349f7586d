"""A policy file to a `Policy`, or to the first flaw in it, with its line. docs/reference/policy.md has every key.

The standard parser reads; `toml_lines` says what stands where. A flaw is told in fixed words and never quotes the file,
because it goes to the log. Amounts are read as decimals, so that 0.015 is exactly 15,000 micro-dollars.
"""

import hashlib
import re
import tomllib
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from gateway.governance.pii.national import known_ids
from gateway.governance.policy.patterns import Pattern
from gateway.governance.policy.policy import KINDS, PII, Action, AgentRules, Entry, Policy, Price, Rate, Side
from gateway.governance.policy.selectors import SELECTORS_MAX, Selector, selector_trouble
from gateway.governance.policy.shapes import FlawedError, Shapes
from gateway.governance.policy.shapes import PolicyFlaw as PolicyFlaw
from gateway.governance.policy.toml_lines import Place, lines_of
from gateway.governance.policy.upstream_text import UpstreamReader
from gateway.identity.tokens import AGENT_ID

_NATIONAL_IDS = frozenset(known_ids())

POLICY_CHARS_MAX = 256 * 1024
DOLLARS_MAX = 1_000_000
CALLS_MAX = 1_000_000
REVISION_CHARS = 12  # of a policy's SHA-256, in hexadecimal
RATES_MAX = 32  # of an entry: each is a bucket for every agent that it matches

_AGENT_PREFIX = "agent_"


def parse(text: str) -> Policy | PolicyFlaw:
    """Never raises."""
    if len(text) > POLICY_CHARS_MAX:
        return PolicyFlaw(1, f"a policy has at most {POLICY_CHARS_MAX} characters", "use patterns, or lists of agents")
    try:
        document = tomllib.loads(text, parse_float=_decimal)
        return _Reader(lines_of(text)).policy(document, revision_of(text))
    except FlawedError as flawed:
        return flawed.flaw
    except tomllib.TOMLDecodeError as error:
        return _not_toml(text, str(error))
    except RecursionError:
        line = _line_of_match(r"(?:[\[{][^\[{]{0,9}){50}", text)
        return PolicyFlaw(line, "it is nested too deep", "a policy needs few levels")
    except ValueError:  # an integer of more digits than Python reads
        return PolicyFlaw(_line_of_match(r"[0-9_]{4000,}", text), "a number has too many digits", "write a smaller one")


def revision_of(text: str) -> str:
    """Short, the same for the same text in every process and after every restart: what an audit line was judged by."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:REVISION_CHARS]


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError:  # an exponent past all bounds
        return Decimal("NaN")


# ---- what is not even TOML -----------------------------------------------------------------------------------------

# Messages of tomllib that quote the file, by how they begin.
_UNQUOTED = {
    "Cannot": "a key or a table is there twice",
    "Duplicate": "a key is there twice",
    "Illegal character": "a character that TOML does not allow here",
    "Found invalid character": "a character that TOML does not allow here",
}


def _not_toml(text: str, told: str) -> PolicyFlaw:
    message, _, where = told.rpartition(" (at ")
    reason = next((words for start, words in _UNQUOTED.items() if message.startswith(start)), message.lower())
    at = re.match(r"line (\d+)", where)
    line = int(at[1]) if at else text.rstrip().count("\n") + 1
    return PolicyFlaw(line, f"it is not TOML: {reason}", "see https://toml.io for how to write it")


def _line_of_match(regex: str, text: str) -> int:
    match = re.search(regex, text)
    return 1 if match is None else text.count("\n", 0, match.start()) + 1


# ---- what is TOML and perhaps a policy -----------------------------------------------------------------------------


class _Reader(Shapes):
    """Each method takes a value and its place, and answers with what it means or raises the flaw."""

    def policy(self, document: Mapping[str, Any], revision: str) -> Policy:
        top = self._table(document, (), ("agents", "pii", "upstreams"))
        if not top.get("agents"):
            self._fail(
                ("agents",),
                "there is no [[agents]] entry",
                'add one; to deny every agent write [[agents]] with agent = "*" and tools = []',
            )
        entries = tuple(self._entry(entry, place) for entry, place in self._list(top["agents"], ("agents",)))
        pii = self._table(top.get("pii", {}), ("pii",), ("national_ids",))
        national_ids = self._list(pii.get("national_ids", []), ("pii", "national_ids"))
        names = tuple(self._national_id(name, place) for name, place in national_ids)
        upstreams = UpstreamReader(self._lines).upstreams(top.get("upstreams", []), ("upstreams",))
        return Policy(entries, names, upstreams, revision)

    def _entry(self, value: Any, place: Place) -> Entry:
        keys = ("agent", "tools", "nodes", "budget", "budget_period", "price", "prices", "rates", "pii")
        entry = self._table(value, place, keys, needs=("agent", "tools"))
        given: dict[str, Any] = {}
        readers: dict[str, tuple[str, Callable[[Any, Place], Any]]] = {
            "nodes": ("nodes", self._selectors),
            "budget": ("budget_micros", self._micros),
            "budget_period": ("budget_period_s", self._duration_s),
            "price": ("price_micros", self._micros),
            "prices": ("prices", self._prices),
            "rates": ("rates", self._rates),
            "pii": ("pii", self._pii),
        }
        agents = self._patterns(entry["agent"], (*place, "agent"), self._agent)
        if not agents:
            self._fail((*place, "agent"), "an entry is for at least one agent", "name one, or remove the entry")
        tools = self._patterns(entry["tools"], (*place, "tools"), self._pattern)
        for key, (name, read) in readers.items():
            if key in entry:
                given[name] = read(entry[key], (*place, key))
        said: list[Place] = [(key,) for key in ("tools", "nodes", "budget", "budget_period", "price")]
        said += [("tools", index) for index in range(len(tools))]
        said += [("nodes", index) for index in range(len(given.get("nodes", ())))]
        said += [("pii", side, kind) for side in Side for kind in KINDS]
        lines = {".".join(map(str, key)): self._lines[*place, *key] for key in said if (*place, *key) in self._lines}
        return Entry(agents, AgentRules(tools, **given, lines=lines), self._line(place))

    def _prices(self, value: Any, place: Place) -> tuple[Price, ...]:
        prices = []
        for one, at in self._list(value, place):
            price = self._table(one, at, ("tools", "nodes", "price"), needs=("tools", "price"))
            tools = self._patterns(price["tools"], (*at, "tools"), self._pattern)
            micros, line = self._micros(price["price"], (*at, "price")), self._line((*at, "price"))
            prices.append(Price(tools, micros, self._row_nodes(price, at), line))
        return tuple(prices)

    def _rates(self, value: Any, place: Place) -> tuple[Rate, ...]:
        rates = []
        for one, at in self._list(value, place):
            rate = self._table(one, at, ("tools", "nodes", "calls", "per"), needs=("tools", "calls", "per"))
            tools = self._patterns(rate["tools"], (*at, "tools"), self._pattern)
            calls = rate["calls"]
            if type(calls) is not int or not 1 <= calls <= CALLS_MAX:
                self._fail((*at, "calls"), f"calls is a whole number from 1 to {CALLS_MAX}", "write such a number")
            per_s = self._duration_s(rate["per"], (*at, "per"))
            rates.append(Rate(tools, calls, per_s, self._row_nodes(rate, at), self._line((*at, "calls"))))
        if len(rates) > RATES_MAX:
            self._fail((*place, RATES_MAX), f"an entry has at most {RATES_MAX} rates", "join some of them")
        return tuple(rates)

    def _pii(self, value: Any, place: Place) -> dict[Side, dict[str, Action]]:
        sides = self._table(value, place, tuple(Side))
        actions = {side: dict(PII[side]) for side in Side}
        for side, kinds in sides.items():
            for kind, action in self._table(kinds, (*place, side), KINDS).items():
                if action not in list(Action):
                    self._fail(
                        (*place, side, kind), "this is no action on personal data", f"use one of {', '.join(Action)}"
                    )
                actions[Side(side)][kind] = Action(action)
        return actions

    # ---- nodes ------------------------------------------------------------------------------------------------------

    def _row_nodes(self, row: Mapping[str, Any], place: Place) -> tuple[Selector, ...]:
        return self._selectors(row["nodes"], (*place, "nodes")) if "nodes" in row else ()

    def _selectors(self, value: Any, place: Place) -> tuple[Selector, ...]:
        """One, or a list. None at all could be meant as all nodes or as none, so it is neither."""
        if isinstance(value, str):
            return (self._selector(value, place),)
        selectors = tuple(self._selector(one, at) for one, at in self._list(value, place))
        if not selectors:
            self._fail(place, "nodes has at least one selector", "name one; for every node, leave the key out")
        if len(selectors) > SELECTORS_MAX:
            self._fail(
                (*place, SELECTORS_MAX),
                f"nodes has at most {SELECTORS_MAX} selectors",
                "give the nodes a tag in common",
            )
        return selectors

    def _selector(self, value: Any, place: Place) -> Selector:
        if not isinstance(value, str):
            self._fail(place, "a selector is a string", "put it in quotes")
        trouble = selector_trouble(value)
        if trouble is not None:
            self._fail(place, *trouble)
        return Selector(value)

    # ---- values -----------------------------------------------------------------------------------------------------

    def _agent(self, value: Any, place: Place) -> Pattern:
        pattern = self._pattern(value, place)
        start = pattern.text.partition("*")[0]
        possible = (
            AGENT_ID.match(value)
            if pattern.is_literal
            else start.startswith(_AGENT_PREFIX) or _AGENT_PREFIX.startswith(start)
        )
        if not possible:
            self._fail(place, "no agent has such an id", 'an agent is "agent_<uuid>" in lower case; "*" is every agent')
        return pattern

    def _micros(self, value: Any, place: Place) -> int:
        advice = "write dollars as a number, such as 10 or 0.015"
        if type(value) is not int and not isinstance(value, Decimal):
            self._fail(place, "this is no amount of money", advice)
        amount = Decimal(value)
        if not amount.is_finite() or not 0 <= amount <= DOLLARS_MAX:
            self._fail(place, f"an amount is from 0 to {DOLLARS_MAX} dollars", advice)
        rounded = amount.quantize(Decimal("0.000001"))
        if rounded != amount:
            self._fail(place, "this is not a whole number of micro-dollars", "use at most six decimals")
        return int(rounded.scaleb(6))

    def _national_id(self, value: Any, place: Place) -> str:
        if value not in _NATIONAL_IDS:
            self._fail(place, "this is no national id that can be found", 'write country and name, such as "nl.bsn"')
        return str(value)
