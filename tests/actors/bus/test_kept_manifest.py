"""A retained manifest is the one that was accepted, and makes what follows from it only when asked."""

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import actors.bus.kept_manifest
from actors.bus.kept_manifest import UNREADABLE_MANIFEST, decode_manifest, encode_manifest
from schemas.canonical import digest, first_unsafe_number
from schemas.manifest import Accepted
from schemas.projection import project

MANIFEST: dict[str, Any] = {
    "manifest_version": "1.1.0",
    "node_id": "01arz3ndektsv4rrffq69g5fav",
    "issued_at_ms": 1_745_300_000_000,
    "expires_at_ms": 1_745_303_600_000,
    "capabilities": [
        {
            "cap_id": "metrics",
            "kind": "system.metrics",
            "schema_ref": "mcp://schemas/system.metrics@1.0.0",
            "verbs": ["snapshot", "subscribe"],
            "safety_class": "read_only",
            "constraints": {"rate_limit_rps": 10, "max_concurrency": 4.0},
        },
        {
            "cap_id": "echo",
            "kind": "system.echo",
            "schema_ref": "mcp://schemas/system.echo.invoke.input@1.0.0",
            "verbs": ["invoke"],
            "safety_class": "read_only",
            "constraints": {"rate_limit_rps": 0.5},
        },
    ],
}


def accepted(manifest: dict[str, Any]) -> Accepted:
    return Accepted(manifest, digest(manifest), project(manifest))


def kept(manifest: Any) -> Accepted:
    return decode_manifest(msgspec.json.encode({"tenant": "acme", "manifest": manifest}))[1]


def made_at_once(manifest: Any) -> Accepted:
    """What `decode_manifest` would be if it put nothing off. No unsafe number is accepted in the first place."""
    if first_unsafe_number(manifest) is not None:
        raise ValueError
    made = accepted(manifest)
    made.is_expired(made.issued_at_ms)
    return made


def test_what_was_accepted_is_what_is_retained() -> None:
    before = accepted(MANIFEST)
    tenant, after = decode_manifest(encode_manifest("acme", before))
    assert tenant == "acme"
    assert after == before
    assert before == after
    assert (after.manifest, after.etag, after.tools) == (before.manifest, before.etag, before.tools)
    assert after != accepted({**MANIFEST, "issued_at_ms": 1})


def test_etag_and_tools_are_made_when_asked_for_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(name: str, make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def make_and_count(manifest: Any) -> Any:
            made.append(name)
            return make(manifest)

        return make_and_count

    monkeypatch.setattr(actors.bus.kept_manifest, "digest", counted("etag", digest))
    monkeypatch.setattr(actors.bus.kept_manifest, "project", counted("tools", project))
    manifest = kept(MANIFEST)
    assert not manifest.is_expired(manifest.issued_at_ms)
    assert manifest.has_tools_of(kept({**MANIFEST, "issued_at_ms": 1_745_300_000_001}))
    assert made == []
    assert manifest.tools is manifest.tools
    assert manifest.etag is manifest.etag
    assert made == ["tools", "etag"]


def test_tools_are_compared_however_they_are_said() -> None:
    one, other = kept(MANIFEST), copy.deepcopy(MANIFEST)
    other["capabilities"].reverse()
    assert one.has_tools_of(kept(other))
    assert one.has_tools_of(accepted(other))
    other["capabilities"].pop()
    assert not one.has_tools_of(kept(other))
    assert not accepted(other).has_tools_of(one)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, 2**53, 2**80, -1.5, 1e300, "", "4", "x", "system.echo", "invoke", [], {}, [[]], {"x": 1}]),
)


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """A manifest of which one thing or several are gone, or something else."""
    manifest = copy.deepcopy(MANIFEST)
    for _ in range(draw(st.integers(1, 3))):
        at: Any = manifest
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(at[key], dict | list) and at[key] and draw(st.booleans()):
                at = at[key]
                continue
            if draw(st.booleans()):
                at[key] = copy.deepcopy(draw(VALUES))
            elif isinstance(at, dict):
                del at[key]
            break
    return manifest


@given(damaged())
def test_what_cannot_be_made_of_it_is_found_out_at_once(manifest: Any) -> None:
    try:
        expected = made_at_once(manifest)
    except (*UNREADABLE_MANIFEST, AttributeError):
        with pytest.raises(UNREADABLE_MANIFEST):
            kept(manifest)
    else:
        found = kept(manifest)
        assert (found.etag, found.tools) == (expected.etag, expected.tools)
