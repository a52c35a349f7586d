"""Links, names of files, hints, and a room in a terminal, as decided."""

from random import Random
from typing import Any

import pytest

from gateway.commands.space_file_rules import NAME_BYTES_MAX, is_media_type, local_name, part_head, which
from gateway.commands.space_hint_rules import what_to_do
from gateway.commands.space_join_rules import (
    ABNORMAL,
    CAP_S,
    HELP,
    ComeBack,
    Note,
    Over,
    Presence,
    Quit,
    after_close,
    after_refusal,
    shown,
    typed,
)
from gateway.commands.space_link_rules import SpaceLink, read_base, read_link
from schemas.closes import Return
from schemas.echo.closes import RoomClose
from schemas.echo.errors import EchoError
from schemas.echo.frames import SUBS_MAX

TOKEN = "es_" + "A" * 43
CLAIM = "ei_" + "A" * 43
HERE = SpaceLink("https://gw.example", TOKEN)


# ---- links -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "url", "link"),
    [
        (f"https://gw.example/s/{TOKEN}", None, HERE),
        (f"https://gw.example/s/{TOKEN}/prompt", None, HERE),
        (f"https://gw.example/api/s/{TOKEN}", None, HERE),
        (f"https://gw.example/api/s/{TOKEN}/kv/a", None, HERE),
        (f"wss://gw.example/ws/s/{TOKEN}?uid=ada", None, HERE),
        (f"https://gw.example/s/{TOKEN}#claim={CLAIM}", None, SpaceLink("https://gw.example", TOKEN, CLAIM)),
        (f"https://gw.example/s/{TOKEN}#elsewhere", None, HERE),
        (f"http://[::1]:8420/s/{TOKEN}", None, SpaceLink("http://[::1]:8420", TOKEN)),
        (f"https://gw.example/echo/s/{TOKEN}", None, SpaceLink("https://gw.example/echo", TOKEN)),
        (TOKEN, "https://gw.example/", HERE),
        (TOKEN, None, None),
        (TOKEN, "gw.example", None),
        ("", None, None),
        ("https://gw.example/", None, None),
        (f"https://user:pw@gw.example/s/{TOKEN}", None, None),
        (f"ftp://gw.example/s/{TOKEN}", None, None),
        (f"https://gw.example:nope/s/{TOKEN}", None, None),
        (f"https://[gw/s/{TOKEN}", None, None),
        (f"https://gw example/s/{TOKEN}", None, None),
        ("https://gw.example/s/ä", None, None),
        ("01m7p6hqs2dzhfd9qxt48rxmgn", "https://gw.example", None),  # a space's id is a name, and no authority
    ],
)
def test_a_link_says_where_a_space_is_and_what_its_token_is(text: str, url: str | None, link: SpaceLink | None) -> None:
    assert read_link(text, url) == link


def test_addresses_of_a_space_follow_from_its_link() -> None:
    assert HERE.page == f"https://gw.example/s/{TOKEN}"
    assert HERE.api == f"/api/s/{TOKEN}"
    assert HERE.websocket == f"wss://gw.example/ws/s/{TOKEN}"


@pytest.mark.parametrize("text", ["", "gw.example", "https://", "https://a?b", "https://a#b", "ws://a", "http://a:0"])
def test_what_is_no_address_is_none(text: str) -> None:
    assert read_base(text) is None


# ---- errors ----------------------------------------------------------------------------------------------------------

LATER = {"project", "object", "domain", "path", "subscription", "api", "push", "mcp", "multi", "last", "csrf"}


def test_every_error_of_a_space_comes_with_what_to_do() -> None:
    """But for those of routes that no command uses."""
    silent = {error.word for error in EchoError if not what_to_do(error.word)}
    others = {"signature_mismatch", "unsupported_protocol", "encrypted_room", "not_acceptable"}
    others |= {"unsupported_media_type", "upgrade_required"}
    assert {word for word in silent - others if not set(word.split("_")) & LATER} == set()
    assert what_to_do("of another service") == ""
    assert what_to_do("rate_limited", 1200) == "Try again in 2 s."


# ---- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("photo.png", "photo.png"),
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("/etc/shadow", "shadow"),
        (".bashrc", "bashrc"),
        ("..", "file"),
        (".", "file"),
        ("", "file"),
        ("a/", "file"),
        ("-rf", "rf"),
        ("~root", "root"),
        ("a\x00b\x1b[2J\n.txt", "ab[2J.txt"),
        ("\u202egnp.exe", "gnp.exe"),
        (" . hidden", "hidden"),
        ("grün.txt", "grün.txt"),
        ("\ud800x", "x"),
    ],
)
def test_a_name_from_elsewhere_is_never_a_path(name: str, here: str) -> None:
    assert local_name(name) == here


def test_a_long_name_is_cut_between_characters() -> None:
    assert local_name("ü" * 300) == "ü" * (NAME_BYTES_MAX // 2)


def test_a_part_cannot_be_left_by_its_name() -> None:
    head = part_head("B", 'a"\r\nX: y', "text/plain")
    assert head.count(b"\r\n") == 4
    assert b'filename="a%22%0D%0AX: y"' in head


@pytest.mark.parametrize(
    ("text", "is_one"), [("image/png", True), ("image", False), ("a/b\r\nc: d", False), ("", False)]
)
def test_media_types(text: str, is_one: bool) -> None:
    assert is_media_type(text) is is_one


def test_an_id_is_preferred_to_a_name() -> None:
    files: list[Any] = [{"file_id": "1", "name": "2"}, {"file_id": "2", "name": "x"}, {"file_id": "3", "name": "x"}, {}]
    assert which(files, "2") == [files[1]]
    assert which(files, "x") == files[1:3]
    assert which(files, "y") == []


# ---- what is typed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("hello there \r", {"type": "msg", "data": "hello there"}),
        ("//quit", {"type": "msg", "data": "/quit"}),
        ("/to ada  hi you", {"type": "msg", "tuid": "ada", "data": "hi you"}),
        ("/sub lobby hi", {"type": "msg", "sub": "lobby", "data": "hi"}),
        ("/join lobby", {"type": "join", "subs": ["lobby"]}),
        ("/leave lobby", {"type": "leave", "subs": ["lobby"]}),
        ("/who", {"type": "who"}),
        ("/who lobby", {"type": "who", "sub": "lobby"}),
        ("/quit", Quit()),
        ("/to ada", Note(HELP)),
        ("/to ä hi", Note(HELP)),
        ("/join", Note(HELP)),
        ("/join a b", Note(HELP)),
        ("/help", Note(HELP)),
        ("/", Note(HELP)),
        ("  ", None),
        ("", None),
    ],
)
def test_a_line_is_a_message_or_a_command(line: str, meant: Any) -> None:
    assert typed(line) == meant


# ---- what is shown ---------------------------------------------------------------------------------------------------

MSG = {"type": "msg", "uid": "ada", "at": "2026-01-02T03:04:05.678Z", "data": "hi"}


@pytest.mark.parametrize(
    ("frame", "line"),
    [
        (MSG, "03:04:05 ada: hi"),
        ({**MSG, "data": {"text": "hi"}}, "03:04:05 ada: hi"),
        ({**MSG, "data": {"text": "hi", "x": 1}}, '03:04:05 ada: {"text": "hi", "x": 1}'),
        ({**MSG, "data": None}, "03:04:05 ada: null"),
        ({**MSG, "tuid": "me"}, "03:04:05 ada → you: hi"),
        ({**MSG, "tuid": "bob", "sub": "lobby"}, "03:04:05 ada [lobby] → bob: hi"),
        ({"type": "msg", "uid": "ada", "at": 1, "bin": "AAAA"}, "--:--:-- ada: (3 bytes)"),
        ({"type": "join", "uid": "bob"}, "* bob joined"),
        ({"type": "join", "uid": "bob", "subs": ["a", "b"]}, "* bob joined [a] [b]"),
        ({"type": "leave", "uid": "bob"}, "* bob left"),
        ({"type": "leave", "uid": "bob", "subs": ["a"]}, "* bob left [a]"),
        ({"type": "state", "uid": "bob", "data": {"typing": True}}, '* bob is {"typing": true}'),
        ({"type": "who", "members": [{"uid": "bob"}, 1], "total": 7}, "* 7 here: bob"),
        ({"type": "error", "error": "rate_limited", "message": "Wait."}, "! rate_limited: Wait."),
        ({"type": "ack", "id": "1"}, None),
        ({"type": "pong"}, None),
        ({}, None),
    ],
)
def test_a_frame_is_a_line(frame: dict[str, Any], line: str | None) -> None:
    assert shown(frame, "me") == line


ESCAPES = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e\x7f\r\b"


@pytest.mark.parametrize(
    "frame",
    [
        {**MSG, "data": ESCAPES},
        {**MSG, "data": {"text": ESCAPES}},
        {**MSG, "data": [ESCAPES]},
        {**MSG, "uid": ESCAPES, "at": ESCAPES * 3, "tuid": ESCAPES, "sub": ESCAPES},
        {"type": "join", "uid": ESCAPES, "subs": [ESCAPES]},
        {"type": "leave", "uid": ESCAPES, "subs": ESCAPES},
        {"type": "state", "uid": ESCAPES, "data": ESCAPES},
        {"type": "who", "members": [{"uid": ESCAPES}], "total": ESCAPES},
        {"type": "error", "error": ESCAPES, "message": ESCAPES},
        {"type": "welcome", "uid": ESCAPES, "expires_at": ESCAPES, "members": []},
    ],
)
def test_nothing_that_a_terminal_would_obey_is_shown(frame: dict[str, Any]) -> None:
    line = shown(frame, "me")
    assert line is not None
    assert line.isprintable()


def test_lines_of_a_message_cannot_be_taken_for_other_messages() -> None:
    assert shown({**MSG, "data": "a\n00:00:00 bob: b"}, "me") == "03:04:05 ada: a\n    00:00:00 bob: b"


# ---- coming back -----------------------------------------------------------------------------------------------------

WELCOME = {"type": "welcome", "uid": "u1", "space_id": "s1", "epoch": "e1", "seq": 5, "recovered": False}


def test_who_comes_back_is_the_same_and_asks_for_what_was_missed() -> None:
    place = Presence(None, ["a"], wants_copy=True)
    assert place.query() == "subs=a&self=1"
    assert not place.hear(WELCOME)
    assert (place.uid, place.space_id) == ("u1", "s1")
    assert place.query() == "uid=u1&subs=a&self=1&since=5&epoch=e1"
    place.say({"type": "join", "subs": ["b", "a"]})
    place.say({"type": "leave", "subs": ["a"]})
    place.say({"type": "msg", "subs": "no list"})
    place.hear({"type": "msg", "seq": 9})
    assert place.query() == "uid=u1&subs=b&self=1&since=9&epoch=e1"


def test_subspaces_that_the_room_rejects_are_not_asked_for_again() -> None:
    place = Presence(None)
    for subs in (["a,b"], ["a", ""], ["a", 1], ["x" * 65], [f"s{number}" for number in range(SUBS_MAX + 1)]):
        place.say({"type": "join", "subs": subs})
    assert place.subs == []
    place.say({"type": "join", "subs": [f"s{number}" for number in range(SUBS_MAX)]})
    place.say({"type": "join", "subs": ["one-more"]})
    place.say({"type": "leave", "subs": ["s0", "a,b"]})  # rejected whole
    assert place.subs == [f"s{number}" for number in range(SUBS_MAX)]
    place.say({"type": "leave", "subs": ["s0"]})
    place.say({"type": "join", "subs": ["one-more", "one-more", "s1"]})
    assert place.subs == [*(f"s{number}" for number in range(1, SUBS_MAX)), "one-more"]


def test_replays_count_and_what_is_lost_is_told() -> None:
    place = Presence("me")
    place.hear(WELCOME)
    assert not place.hear({**WELCOME, "seq": 8, "recovered": True})
    assert "since=5" in place.query()  # until the replay has come
    place.hear({"type": "msg", "seq": 8, "replay": True})
    assert "since=8" in place.query()
    assert place.hear({**WELCOME, "seq": 2, "epoch": "e2"})
    assert place.query() == "uid=u1&since=2&epoch=e2"


def test_what_this_side_said_and_has_an_ack_for_is_not_asked_for_again() -> None:
    place = Presence("me")
    place.hear(WELCOME)
    place.hear({"type": "ack", "id": "x", "seq": 6, "delivered": 0})
    place.hear({"type": "ack", "id": "y", "seq": "no number"})
    assert "since=6" in place.query()


def test_a_welcome_of_another_kind_breaks_nothing() -> None:
    place = Presence("me")
    place.hear({"type": "welcome", "seq": "x", "epoch": 1, "space_id": "ä", "uid": None})
    assert (place.query(), place.space_id) == ("uid=me", None)
    for uid, epoch in (("\ud800", "\ud800"), ("a b", "e" * 129), ("x" * 65, "ä"), ("", "")):
        place.hear({"type": "welcome", "seq": 1, "epoch": epoch, "uid": uid})
        assert place.query() == "uid=me"
    for wrong in (-1, 2**63, True, 1.0):
        place.hear({**WELCOME, "uid": "me", "seq": wrong})
        place.hear({"type": "msg", "seq": wrong})
        assert place.query() == "uid=me"


@pytest.mark.parametrize("close", RoomClose)
def test_every_close_is_answered_as_the_table_says(close: RoomClose) -> None:
    what = after_close(close.value.code, 0, Random(1))
    if close.value.come_back in (Return.NO, Return.WITH_NEW_TOKEN):
        assert isinstance(what, Over)
        assert (what.status, str(close.value.code) in what.why) == (1, True)
    elif close is RoomClose.NORMAL:
        assert what == Over("the room closed the connection", 0)
    else:
        assert isinstance(what, ComeBack)


def test_waits_grow_with_failures_up_to_a_bound_and_are_never_alike() -> None:
    rng = Random(1)
    for failures, bound_s in ((0, 0.5), (1, 1.0), (3, 4.0), (50, CAP_S)):
        waits = [wait.wait_s for _ in range(200) if isinstance(wait := after_close(ABNORMAL, failures, rng), ComeBack)]
        assert len(set(waits)) == 200
        assert bound_s * 0.9 < max(waits) <= bound_s
    restart = after_close(1012, 0, Random(2))
    assert isinstance(restart, ComeBack)
    assert restart.wait_s > 0.5


def test_a_refused_upgrade_is_tried_again_only_where_that_can_help() -> None:
    for status in (400, 401, 403, 404, 426):
        assert after_refusal(status, "word", None, 0, Random(1)) == Over(f"word (HTTP {status})", 1)
    for status in (429, 500, 503):
        assert isinstance(after_refusal(status, "word", None, 0, Random(1)), ComeBack)
    waits = after_refusal(429, "word", 3000, 0, Random(1))
    assert isinstance(waits, ComeBack)
    assert 3.0 <= waits.wait_s <= 3.5
    for said_ms, wait_s in ((10**400, CAP_S), (-(10**400), 0.0)):
        waits = after_refusal(429, "word", said_ms, 0, Random(1))
        assert isinstance(waits, ComeBack)
        assert wait_s <= waits.wait_s <= wait_s + 0.5
