"""Personal data: what is found, what is left alone, and that nothing found gets out."""

from collections import Counter
from typing import Any

import pytest

from gateway.governance.pii import Scanner
from gateway.governance.pii_kinds import Kind
from gateway.governance.pii_prefilter import Prefilter
from tests.governance.corpus import NATIONAL_IDS, documents

SEED = 20260728
ALL = Scanner(Kind, NATIONAL_IDS)
PLAIN = Scanner(Kind)


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
