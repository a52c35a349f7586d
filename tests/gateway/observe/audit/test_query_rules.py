"""What may be asked of the kept audit, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.observe.audit.query_rules import LINES_DEFAULT, LINES_MAX, AuditQuery, BadAuditQuery, KeptLine, read_query

NOW_MS = 1_790_000_000_000


def test_filters_become_the_columns_that_they_are_about() -> None:
    query = read_query({"agent": "agent_x", "tool": "t", "node": "n", "reason": "budget"}, NOW_MS)
    assert query.equal == (("sub", "agent_x"), ("tool", "t"), ("node_id", "n"), ("reason", "budget"))
    assert (query.limit, query.before, query.after) == (LINES_DEFAULT, None, None)


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("90s", NOW_MS - 90_000),
        ("30m", NOW_MS - 1_800_000),
        ("12h", NOW_MS - 43_200_000),
        ("7d", NOW_MS - 604_800_000),
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T01:00:01+01:00", 1_000),
        ("1970-01-01T00:00:01", 1_000),
    ],
)
def test_time_is_a_date_or_how_long_ago(text: str, at_ms: int) -> None:
    assert read_query({"since": text, "until": text}, NOW_MS) == AuditQuery((), at_ms, at_ms)


@pytest.mark.parametrize(
    "fields",
    [
        {"since": "yesterday"},
        {"until": "7w"},
        {"since": "²d"},
        {"since": ""},
        {"before": "-1"},
        {"after": "x"},
        {"limit": "1e3"},
        {"before": "1", "after": "1"},
        {"agent": "x" * 257},
        {"colour": "red"},
        {"tenant": "\udcff\udcfe"},
    ],
)
def test_what_is_no_query_is_refused_without_repeating_it(fields: dict[str, str]) -> None:
    with pytest.raises(BadAuditQuery) as refused:
        read_query(fields, NOW_MS)
    assert not any(len(text) > 3 and text in str(refused.value) for text in fields.values())


@pytest.mark.parametrize(
    ("asked", "given"), [("1", 1), ("0", LINES_DEFAULT), ("1000", LINES_MAX), ("9" * 18, LINES_MAX)]
)
def test_no_answer_is_longer_than_the_limit(asked: str, given: int) -> None:
    assert read_query({"limit": asked}, NOW_MS).limit == given


@given(st.dictionaries(st.sampled_from(["agent", "since", "until", "before", "after", "limit", "x"]), st.text()))
def test_anything_is_a_query_or_is_refused(fields: dict[str, str]) -> None:
    try:
        query = read_query(fields, NOW_MS)
    except BadAuditQuery:
        query = AuditQuery()
    assert 0 < query.limit <= LINES_MAX


def test_line_is_shown_with_its_number_and_time() -> None:
    line = KeptLine(7, 1_001, "node_came", {"node_id": "n"})
    assert line.shown() == {"id": 7, "at": "1970-01-01T00:00:01.001Z", "event": "node_came", "node_id": "n"}
