"""Personal data: what is found, what is left alone, and that nothing found gets out."""

import json
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stdnum import numdb

from gateway.governance.pii.fold import folded
from gateway.governance.pii.kinds import FINDERS, IBAN_LENGTHS, Kind
from gateway.governance.pii.national import known_ids, national_ids
from gateway.governance.pii.prefilter import HAS_HYPERSCAN, Prefilter, with_hyperscan, with_tables
from gateway.governance.pii.scanner import Scanner
from tests.gateway.governance.corpus import NATIONAL_IDS, PLANTS, documents, machine_text, telemetry, tool_name, ulid

ROOT = Path(__file__).parents[3]
SEED = 20260728
KINDS = frozenset(Kind)
ALL = Scanner(KINDS, NATIONAL_IDS)
PLAIN = Scanner(KINDS)


def no_prefilter(kinds: Any) -> Prefilter:
    return lambda _: kinds


# ---- the corpus -----------------------------------------------------------------------------------------------------


def test_every_planted_one_is_found_in_the_corpus_and_little_else(capsys: pytest.CaptureFixture[str]) -> None:
    right, missed, wrong = Counter[Kind](), Counter[Kind](), Counter[Kind]()
    misses, alarms = [], []
    for document in documents(SEED, 10_000):
        found = ALL.find(document.body)
        right.update(found & document.kinds)
        missed.update(document.kinds - found)
        wrong.update(found - document.kinds)
        if document.kinds - found:
            misses.append((document.kinds - found, document.body))
        if found - document.kinds:
            alarms.append((found - document.kinds, document.body))
    with capsys.disabled():
        print(f"\n{'kind':12} {'planted':>8} {'precision':>10} {'recall':>8}  (seed {SEED})")
        for kind in Kind:
            planted = right[kind] + missed[kind]
            precision = right[kind] / max(1, right[kind] + wrong[kind])
            print(f"{kind:12} {planted:8} {precision:10.4f} {right[kind] / planted:8.4f}")
    assert misses == []
    # Nine or eleven digits in a string pass the checksum of some named id now and then; nothing else may be mistaken.
    assert [alarm for alarm in alarms if alarm[0] != {Kind.NATIONAL_ID}] == []
    assert wrong[Kind.NATIONAL_ID] < 0.2 * right[Kind.NATIONAL_ID]


def test_telemetry_tool_names_and_ulids_are_clean() -> None:
    random = Random(SEED)
    for _ in range(10_000):
        frame = {"frame": telemetry(random), "tool": tool_name(random), "ids": [ulid(random), ulid(random).lower()]}
        assert ALL.find(frame) == frozenset(), frame


# ---- one by one -----------------------------------------------------------------------------------------------------

FOUND = {
    Kind.EMAIL: [
        *["a@b.co", "<jane.doe+x@mail.example.com>", "mailto:x@example.org?subject=hi", "联系test@example.com谢谢"],
        *["jörg@exämple.de", "ｊｏｅ＠ｅｘａｍｐｌｅ．ｃｏｍ", "jo\u200be@example.com", "Bye, a@b.example.com."],
    ],
    Kind.PHONE: [
        *["+49 30 1234567", "+442079460958", "+1 (415) 555-0100", "415-555-0100", "(555) 123-4567", "1-415-555-0100"],
        *["020 7946 0958", "06-12345678", "06-12 34 56 78", "01 23 45 67 89", "01.23.45.67.89", "0171/1234567"],
        *["(030) 123456", "0044 20 7946 0958", "+44 (0)20 7946 0958", "電話03-1234-5678です", "tel:+31612345678"],
    ],
    Kind.CARD: [
        *["4111111111111111", "4111 1111 1111 1111", "4111-1111-1111-1111", "378282246310005", "3782 822463 10005"],
        *["4222222222222", "card-5555555555554444", "order 12 4111 1111 1111 1111 exp 12 27", "2223003122003222"],
        *[
            "４１１１１１１１１１１１１１１１",
            "٤١١١١١١١١١١١١١١١",
            "4111\u00a01111\u00a01111\u00a01111",
            "4111 1111 1111 1111 2031",
        ],
    ],
    Kind.IBAN: [
        *["DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432", "BE68 5390 0754 7034 from me", "NO9386011117947"],
        *["fr14 2004 1010 0505 0001 3m02 606", "DE89-3704-0044-0532-0130-00", "IBAN:NL91ABNA0417164300;"],
    ],
    Kind.SSN: ["536-90-4399", "536 90 4399", "SSN:536-90-4399.", "ssn_536-90-4399", "536\u201390\u20134399"],
    Kind.IP: [
        *["1.2.3.4", "192.168.1.10:8080", "10.0.0.0/8", "10.0.0.1-10.0.0.9", "[2001:db8::1]:443", "fe80::1%eth0"],
        *["::ffff:10.1.2.3", "2001:0db8:85a3:0000:0000:8a2e:0370:7334", "fe80::1: up", "4.3.2.1.in-addr.arpa"],
    ],
}
CLEAN = [
    *["01hzx9k3m4p7q8r9s0t1v2w3xy", "550e8400-e29b-41d4-a716-446655440000", "12345678-1234-1234-1234-123456789012"],
    *["1745300000000", "1745300000000000", "1745300000000000000", "20240501103000", "123456789", "0612345678"],
    *["4111111111111112", "1111111111111117", "4111 1111 1111 1112", "4032 3891 2210 1187 4051 5500 0000 0004"],
    *["1.2.3", "v1.2.3.4", "1.2.3.4.5", "1.2.3.4-rc1", "lib.so.1.2.3.4", "127.0.0.1", "0.0.0.0", "255.255.255.0"],
    *["::", "::1", "std::vector", "x[1::2]", "dead::beef", "12:34:56", "00:1a:2b:3c:4d:5e", "01:23:45:67:89:10:11:12"],
    *[
        "2024-05-01T10:30:00.123456Z",
        "2024-05-01 10:30:00+02:00",
        "01-02-2024 10:30",
        "01.02.2024",
        "2024-05-01/2024-06-01",
    ],
    *["0.42 0.39 0.35", "01.50 02.70 03.10", "+12.50 13.75 14.25", "+52.520008+013.404954", "+52.520008", "-12.345678"],
    *["getty@tty1.service", "icon@2x.png", "@app.route", "user@host", "pkg@1.2.3", "kitchen-pi-04", "pi04"],
    *["SN-1234-5678-9012", "SN-0059-5765-5733", "00-11-22-33-44-55", "01 23 45 67 89 10 11 12", "bytes=0-1023/146515"],
    *["000-00-0000", "666-12-3456", "219-09-9999", "d41d8cd98f00b204e9800998ecf8427e", "TWFuIGlzIGRpc3Rpbmd1aXNoZWQ="],
    *[
        "DE89 3704 0044 0532 0130 01",
        "XX89 3704 0044 0532 0130 00",
        "1,234,567.89",
        "/var/01/23/45/67/89",
        "",
        "@",
        "+",
    ],
]


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in FOUND.items() for text in texts])
def test_is_found_as_its_kind_and_no_other(kind: Kind, text: str) -> None:
    assert PLAIN.find(text) == {kind}


@pytest.mark.parametrize("text", CLEAN)
def test_is_nobodys_data(text: str) -> None:
    assert PLAIN.find(text) == frozenset()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *[
            ("nl.bsn", "111222333"),
            ("es.dni", "54362315-K"),
            ("be.nn", "85.07.30-033 28"),
            ("br.cpf", "390.533.447-05"),
        ],
        *[("it.codicefiscale", "RCCMNL83S18D969H"), ("fi.hetu", "131052-308T"), ("se.personnummer", "880320-0016")],
        *[("in.aadhaar", "2341 2341 2346"), ("fr.nir", "2 95 10 99 126 111 93"), ("ch.ssn", "756.9217.0769.85")],
    ],
)
def test_national_id_is_found_when_its_name_is_set_and_only_then(name: str, text: str) -> None:
    scanner = Scanner({Kind.NATIONAL_ID}, [name])
    assert scanner.find([f"id {text}, please"]) == {Kind.NATIONAL_ID}
    assert scanner.redact(text, {Kind.NATIONAL_ID}) == "[national_id]"
    assert Scanner({Kind.NATIONAL_ID}).find(text) == frozenset()


@pytest.mark.parametrize(
    ("name", "advice"),
    [("nl.bns", r"of 'nl' there are .*nl\.bsn"), ("bsn", r"such as nl\.bsn"), ("os.path", "such as"), ("", "such as")],
)
def test_unknown_national_id_is_refused_with_advice(name: str, advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        Scanner({Kind.NATIONAL_ID}, [name])


def test_national_ids_without_their_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="national_id is not among the kinds"):
        Scanner({Kind.EMAIL}, ["nl.bsn"])


def test_every_national_id_of_the_library_takes_any_text() -> None:
    random = Random(SEED)
    texts = ["".join(random.choices("0123456789" * 3 + "ABZxk-./ +", k=random.randrange(7, 20))) for _ in range(100)]
    names = known_ids()
    assert len(names) > 150
    for name in names:
        find = national_ids([name])
        for text in texts:
            list(find(text))


def test_only_the_kinds_asked_for_are_found() -> None:
    assert Scanner({Kind.IP}).find(["a@b.co", "1.2.3.4"]) == {Kind.IP}
    assert Scanner([]).find(["a@b.co", "1.2.3.4"]) == frozenset()


def test_values_are_looked_at_and_keys_and_numbers_are_not() -> None:
    assert PLAIN.find({"a@b.co": 4111111111111111}) == frozenset()
    assert PLAIN.find({"to": [{"who": ("a@b.co",)}], "n": None}) == {Kind.EMAIL}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"a@b.co": None}, {Kind.EMAIL}),
        ([{"x": {"call +49 30 1234567": 1}}], {Kind.PHONE}),
        ({"card": 4111111111111111}, {Kind.CARD}),
        ({"card": 4111111111111111.0}, {Kind.CARD}),
        ([[-5555555555554444]], {Kind.CARD}),
        (111222333, {Kind.NATIONAL_ID}),
        ({"at_ms": 1745300000000, "load": 4111.111111111111, "ok": True, "big": 10**4000, "all": 1e300}, set()),
        ({"nan": float("nan"), "inf": float("inf")}, set()),
    ],
)
def test_thorough_look_takes_in_keys_and_whole_numbers(body: Any, found: set[Kind]) -> None:
    assert ALL.find(body, thorough=True) == found
    assert ALL.find(body) == frozenset()


def test_nesting_does_not_exhaust_the_stack() -> None:
    body: Any = "a@b.co"
    for _ in range(50_000):
        body = [body]
    assert PLAIN.find(body) == PLAIN.find(body, thorough=True) == {Kind.EMAIL}
    clean = PLAIN.redact(body, KINDS, thorough=True)
    while isinstance(clean, list):
        (clean,) = clean
    assert clean == "[email]"


def test_strings_of_a_body_are_not_read_as_one() -> None:
    assert PLAIN.find(["4111 1111", "1111 1111"]) == frozenset()
    assert PLAIN.find(["1", "536-90-4399", "1"]) == {Kind.SSN}


# ---- redaction ------------------------------------------------------------------------------------------------------


def test_redaction_leaves_everything_else_as_it_was() -> None:
    body = {"to": "Ｊane <jane@example.com>, or 1.2.3.4 — bye", "n": [1, 2.5, None, True], "a@b.co": "4111111111111111"}
    before = json.dumps(body)
    assert PLAIN.redact(body, {Kind.EMAIL, Kind.CARD}) == {
        "to": "Ｊane <[email]>, or 1.2.3.4 — bye",
        "n": [1, 2.5, None, True],
        "a@b.co": "[card]",
    }
    assert json.dumps(body) == before


def test_thorough_redaction_changes_keys_and_numbers_and_loses_none_of_either() -> None:
    body = {"a@b.co": 4111111111111111, "c@d.co": [5, {"e@f.co": 1.5}], "[email]": "x", "n": 5555555555554444.0}
    before = json.dumps(body)
    assert PLAIN.redact(body, {Kind.EMAIL, Kind.CARD}, thorough=True) == {
        "[email] 2": "[card]",
        "[email] 3": [5, {"[email]": 1.5}],
        "[email]": "x",
        "n": "[card]",
    }
    assert json.dumps(body) == before
    assert PLAIN.redact(body, {Kind.CARD}, thorough=True)["c@d.co"] == [5, {"e@f.co": 1.5}]


def test_redaction_takes_out_what_cannot_be_seen_in_a_finding_but_not_elsewhere() -> None:
    assert PLAIN.redact("x\u200by 4111\u200b111111111111 z\u200b", KINDS) == "x\u200by [card] z\u200b"


def test_text_that_is_never_clean_goes_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = 0

    def endless(text: str) -> Any:
        nonlocal rounds
        rounds += 1
        return [(len(text) - 1, len(text))] if text != "[email]" else []

    monkeypatch.setitem(FINDERS, Kind.EMAIL, endless)
    scanner = Scanner({Kind.EMAIL}, prefilter=no_prefilter)
    assert scanner.redact("email and more", {Kind.EMAIL}) == "[email]"
    assert rounds < 10


@pytest.mark.parametrize("document", documents(SEED + 1, 300), ids=lambda document: "-".join(sorted(document.kinds)))
def test_nothing_planted_survives_redaction(document: Any) -> None:
    clean = ALL.redact(document.body, KINDS)
    assert ALL.find(clean) == frozenset()
    assert ALL.redact(clean, KINDS) == clean
    written = json.dumps(clean, ensure_ascii=False)
    assert [plant for plant in document.planted if plant in written] == []
    if not ALL.find(document.body):
        assert clean == document.body


PIECES = st.one_of(
    st.sampled_from(
        [*(text for texts in FOUND.values() for text in texts), *CLEAN, " ", "-", ".", "+", "(", "@", "\n"]
    ),
    st.text(alphabet="0123456789", max_size=6),
    st.text(alphabet="019 -./:+()@aF\u200b４", max_size=8),
    st.text(max_size=4),
    st.integers(0, 2**32).map(lambda seed: machine_text(Random(seed))),
    st.integers(0, 2**32).map(lambda seed: Random(seed).choice(list(PLANTS.values()))(Random(seed))),
)
TEXTS = st.lists(PIECES, max_size=6).map("".join)
BODIES = st.recursive(
    TEXTS | st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
)


@given(body=BODIES, kinds=st.sets(st.sampled_from(sorted(Kind)), min_size=1))
def test_redacted_body_has_none_of_those_kinds_and_stays_as_it_is(body: Any, kinds: set[Kind]) -> None:
    clean = ALL.redact(body, kinds)
    assert ALL.find(clean).isdisjoint(kinds)
    assert ALL.redact(clean, kinds) == clean
    if ALL.find(body).isdisjoint(kinds):
        assert clean == body


@given(body=BODIES, kinds=st.sets(st.sampled_from(sorted(Kind)), min_size=1))
def test_thoroughly_redacted_body_has_none_of_those_kinds_anywhere(body: Any, kinds: set[Kind]) -> None:
    clean = ALL.redact(body, kinds, thorough=True)
    assert ALL.find(clean, thorough=True).isdisjoint(kinds)
    assert ALL.redact(clean, kinds, thorough=True) == clean
    if ALL.find(body, thorough=True).isdisjoint(kinds):
        assert clean == body


@given(texts=st.lists(TEXTS, max_size=4))
def test_body_has_what_its_strings_have(texts: list[str]) -> None:
    assert ALL.find(texts) == frozenset().union(*map(ALL.find, texts))


# ---- the prefilter --------------------------------------------------------------------------------------------------

PREFILTERS = [with_tables, *([with_hyperscan] if HAS_HYPERSCAN else [])]
UNFILTERED = Scanner(KINDS, NATIONAL_IDS, prefilter=no_prefilter)
FILTERED = [Scanner(KINDS, NATIONAL_IDS, prefilter=prefilter) for prefilter in PREFILTERS]


@given(text=TEXTS)
def test_no_prefilter_hides_a_finding(text: str) -> None:
    for scanner in FILTERED:
        assert scanner.find(text) == UNFILTERED.find(text)
        assert scanner.redact(text, KINDS) == UNFILTERED.redact(text, KINDS)


def test_prefilters_agree_on_the_corpus() -> None:
    for document in documents(SEED + 2, 2_000):
        findings = [scanner.find(document.body) for scanner in [UNFILTERED, *FILTERED]]
        assert len(set(findings)) == 1, document


def test_scanner_works_where_hyperscan_is_not_installed() -> None:
    program = (
        "import sys; sys.modules['hyperscan'] = None\n"
        "from gateway.governance.pii.scanner import Scanner\n"
        "from gateway.governance.pii.prefilter import HAS_HYPERSCAN\n"
        "print(HAS_HYPERSCAN, *Scanner(['email', 'ip']).find(['mail a@b.co']))"
    )
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert child.stdout == "False email\n"


# ---- what the tables say --------------------------------------------------------------------------------------------


def test_lengths_of_ibans_are_those_of_the_registry() -> None:
    registry = numdb.get("iban")
    for first in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
        for second in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
            country = first + second
            structure = registry.info(country)[0][1].get("bban", "")
            length = sum(int(part.rpartition("!")[0]) for part in re.findall(r"\d+!", structure))
            assert IBAN_LENGTHS.get(country) == (length + 4 if length else None), country


def test_every_decimal_digit_folds_to_ascii() -> None:
    for code in range(0x110000):
        if chr(code).isdecimal():
            assert folded(chr(code)) == str(unicodedata.decimal(chr(code)))


def test_a_character_folds_to_at_most_one() -> None:
    assert all(len(folded(chr(code))) <= 1 for code in range(0x110000))
