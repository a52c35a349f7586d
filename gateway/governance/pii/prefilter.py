"""Which kinds can be in a text at all: a cheap look that may say yes to too much, never no to what is there.

Nearly all that passes a gateway is clean, so this look is what scanning costs. hyperscan (one automaton for all kinds,
in C) where it is installed; otherwise tables of `bytes.translate`, a few times slower. Findings are the same with both.
"""

from collections.abc import Callable, Collection
from typing import Any

from gateway.governance.pii.kinds import Kind

try:
    import hyperscan
except ImportError:  # not every platform and Python has a wheel
    HAS_HYPERSCAN = False
else:
    HAS_HYPERSCAN = True

Prefilter = Callable[[str], Collection[Kind]]
"""From folded text to the kinds worth a pattern."""

# Few and loose, because each costs clean text its share: whatever has the digits of a phone number may be a card too.
_AUTOMATA = {
    rb"@": {Kind.EMAIL},
    rb"(?:^|[^A-Za-z0-9])[A-Za-z]{2}[0-9]{2}[ -]?[A-Za-z0-9]{4}[ -]?[A-Za-z0-9]{4}": {Kind.IBAN},
    rb"\+[1-9](?:[ ./()-]{0,2}[0-9]){7}|[0-9](?:[ ./()-]{0,2}[0-9]){8}": {Kind.PHONE, Kind.CARD, Kind.SSN},
    rb"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]|::|:[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{1,4}:": {Kind.IP},
}
_KINDS = frozenset[Kind]().union(*_AUTOMATA.values())


def with_hyperscan(kinds: Collection[Kind]) -> Prefilter:
    """One automaton for these kinds. It has one scratch space: not for two threads at a time."""
    always = frozenset(kinds) - _KINDS
    automata = {expression: found & set(kinds) for expression, found in _AUTOMATA.items() if found & set(kinds)}
    if not automata:
        return lambda _: always
    database = hyperscan.Database()
    database.compile(
        expressions=list(automata),
        ids=list(range(len(automata))),
        elements=len(automata),
        flags=[hyperscan.HS_FLAG_SINGLEMATCH] * len(automata),
    )
    scan = database.scan
    found_by = list(automata.values())
    met: list[int] = []  # by number, in the scan that is under way

    def meet(number: int, _start: int, _end: int, _flags: int, _context: Any) -> None:
        met.append(number)

    def suspects(text: str) -> Collection[Kind]:
        scan(text.encode("utf-8", "replace"), meet)
        if not met:
            return always
        kinds_met = always.union(*[found_by[number] for number in met])
        met.clear()
        return kinds_met

    return suspects


_DIGITS = bytes(ord("0") if chr(byte) in "0123456789" else byte for byte in range(256))
_CLASSES = bytes(
    ord("0") if chr(byte) in "0123456789" else ord("a") if byte < 128 and chr(byte).isalpha() else ord(" ")
    for byte in range(256)
)
_HEX = b"0123456789abcdefABCDEF"


def with_tables(kinds: Collection[Kind]) -> Prefilter:
    """What is left when the characters in between are taken out: of an IPv4 address three dots in a row."""
    always = frozenset(kinds) - _KINDS
    least_digits = {Kind.PHONE: b"0" * 8, Kind.SSN: b"0" * 9, Kind.CARD: b"0" * 13}
    numbers = {kind: run for kind, run in least_digits.items() if kind in kinds}
    emails, ibans, ips = (kind in kinds for kind in (Kind.EMAIL, Kind.IBAN, Kind.IP))

    def suspects(text: str) -> Collection[Kind]:
        seen = set(always)
        raw = text.encode(errors="replace")
        if emails and b"@" in raw:
            seen.add(Kind.EMAIL)
        if numbers:
            digits = raw.translate(_DIGITS, b" ()./-")
            seen.update(kind for kind, run in numbers.items() if run in digits)
        if ibans and b" aa00" in b" " + raw.translate(_CLASSES):
            seen.add(Kind.IBAN)
        if ips:
            bones = raw.translate(None, _HEX)
            if b"..." in bones or b"::" in raw or b":::::::" in bones:
                seen.add(Kind.IP)
        return seen

    return suspects


fastest = with_hyperscan if HAS_HYPERSCAN else with_tables
