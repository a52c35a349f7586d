"""Names that every client takes: which there are, and that each leads back to one tool."""

import re
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from gateway.calls.flat_names import FLAT_NAME_CHARS_MAX, FlatNames, flat, target_of
from schemas.errors import Code
from schemas.projection import ToolName, parse_tool_name
from tests.gateway.api.test_app import ECHO
from tests.schemas.examples import NODE_ID

TAKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")
own_names = st.text("ab.-_", min_size=1, max_size=70)
upstream_names = st.lists(
    st.tuples(st.sampled_from(["a", "b", "a-b"]), own_names).map(".".join), unique=True, max_size=12
)


def hashed(name: str, text: str) -> str:
    return f"{text}-{sha256(name.encode()).hexdigest()[:6]}"


def test_device_name_goes_both_ways_without_a_table() -> None:
    assert flat(ECHO) == f"sysecho-{NODE_ID}-echo-invoke"
    assert target_of(flat(ECHO)) == target_of(ECHO) == parse_tool_name(ECHO)


def test_longest_capability_id_goes_both_ways() -> None:
    name = f"sysecho.{NODE_ID}.{'a_' * 9}.invoke"
    assert TAKEN.fullmatch(flat(name))
    assert target_of(flat(name)) == ToolName("system.echo", NODE_ID, "a_" * 9, "invoke")


def test_name_in_both_forms_at_once_is_none() -> None:
    for name in (f"sysecho-{NODE_ID}.echo.invoke", f"sysecho.{NODE_ID}-echo-invoke", "a-b", "-", ""):
        assert not isinstance(target_of(name), ToolName)
    assert target_of(f"gpio-{NODE_ID}-pin-set") is Code.KIND_UNSUPPORTED


def test_plain_name_stays_plain() -> None:
    names = FlatNames(["files.read_file", "files.dir.list"])
    assert dict(names.by_name) == {"files.read_file": "files-read_file", "files.dir.list": "files-dir-list"}
    assert names.name_of("files-dir-list") == "files.dir.list"
    assert names.name_of("files.dir.list") is None


def test_all_that_collide_get_a_part_of_their_hash() -> None:
    names = FlatNames(["a.b-c", "a-b.c", "a.other"]).by_name
    assert names["a.b-c"] == hashed("a.b-c", "a-b-c")
    assert names["a-b.c"] == hashed("a-b.c", "a-b-c")
    assert names["a.other"] == "a-other"


def test_name_that_a_device_could_have_gets_a_part_of_its_hash() -> None:
    name = f"sys-{NODE_ID}-metrics.snapshot"
    assert FlatNames([name]).by_name[name] == hashed(name, f"sys-{NODE_ID}-metrics-snapshot")


def test_name_that_is_another_ones_hashed_name_gets_a_hash_itself() -> None:
    taken = hashed("a.b-c", "a-b-c").replace("-", ".", 1)
    names = FlatNames(["a.b-c", "a-b.c", taken]).by_name
    assert len(set(names.values())) == 3


def test_too_long_a_name_is_cut_and_gets_a_part_of_its_hash() -> None:
    long, longer = f"up.{'x' * 61}", f"up.{'x' * 62}"
    names = FlatNames([long, longer]).by_name
    assert names[long] == f"up-{'x' * 61}"
    assert names[longer] == hashed(longer, f"up-{'x' * 54}")
    assert len(names[longer]) == FLAT_NAME_CHARS_MAX


@given(upstream_names)
def test_every_name_is_taken_by_clients_different_and_leads_back_whatever_the_order(names: list[str]) -> None:
    forward, backward = FlatNames(names), FlatNames(reversed(names))
    assert forward.by_name == backward.by_name
    assert len(set(forward.by_name.values())) == len(forward.by_name) == len(names)
    for name, text in forward.by_name.items():
        assert TAKEN.fullmatch(text)
        assert forward.name_of(text) == name
