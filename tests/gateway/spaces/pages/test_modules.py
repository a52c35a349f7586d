"""The modules for others, run by Node.js: seal.js against our own envelopes, room.js against the table of closes."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import segno

import gateway.spaces.pages
from schemas.closes import Return
from schemas.echo.closes import RoomClose
from schemas.echo.envelope import WS_KID, kv_kid, read_envelope, seal, shown_key, unseal

STATIC = Path(gateway.spaces.pages.__file__).parent / "static"
KEY, IV = bytes(range(32)), bytes(range(12))

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js here")

# A browser as far as room.js knows one, with time that passes when it is told to.
BROWSER = """
    const sockets = [], timers = new Map();
    let lastTimer = 0, status = 200;
    globalThis.setTimeout = (work, wait) => { timers.set(++lastTimer, { work, wait }); return lastTimer; };
    globalThis.clearTimeout = (id) => timers.delete(id);
    globalThis.fetch = async (url, { method }) => { asked.push([method, url.pathname]); return { status }; };
    globalThis.WebSocket = class {
      constructor(url, protocol) { Object.assign(this, { url, protocol, sent: [] }); sockets.push(this); }
      send(text) { this.sent.push(JSON.parse(text)); }
      close() { this.isClosed = true; }
      say(frame) { this.onmessage({ data: JSON.stringify(frame) }); }
    };
    const asked = [], settled = () => new Promise((resolve) => setImmediate(resolve));
    const wait = async (longest) => {
      for (const [id, { work, wait }] of [...timers]) if (wait <= longest) { timers.delete(id); work(); }
      await settled();
    };
    const last = () => sockets.at(-1);
    const first = { type: "welcome", uid: "ada", conn: "c", epoch: "e", seq: 7, recovered: false };
    const welcome = (more) => ({ ...first, ...more });
"""


def run(tmp_path: Path, script: str, *arguments: str) -> Any:
    for name in ("room.js", "seal.js", "qr.js"):
        (tmp_path / name.replace(".js", ".mjs")).write_bytes((STATIC / name).read_bytes())
    file = tmp_path / "try.mjs"
    file.write_text(script)
    ran = subprocess.run(["node", str(file), *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


# ---- seal.js ---------------------------------------------------------------------------------------------------------


def test_what_we_seal_opens_in_the_browser_only_at_its_place_and_unaltered(tmp_path: Path) -> None:
    envelope = seal(KEY, kv_kid("k"), "wört".encode(), IV)
    own = seal(KEY, "x:mine", b"text", IV)
    script = """
        import { importKey, unseal } from "./seal.mjs";
        const [shown, ...asked] = process.argv.slice(2);
        const key = await importKey(shown), told = [];
        for (let at = 0; at < asked.length; at += 2) told.push(await unseal(key, asked[at], asked[at + 1]));
        console.log(JSON.stringify(told));
    """
    header, _, iv, text, tag = envelope.split(".")
    altered = ".".join((header, "", iv, text, ("A" if tag[0] != "A" else "B") + tag[1:]))
    cases = {
        (kv_kid("k"), envelope): {"text": "wört"},
        (kv_kid("j"), envelope): {"fault": "other_place"},
        (WS_KID, envelope): {"fault": "other_place"},
        (WS_KID, own): {"fault": "own_key"},
        (kv_kid("k"), altered): {"fault": "broken"},
        (kv_kid("k"), "plain"): {"fault": "plain"},
        (kv_kid("k"), "a..b.c.d"): {"fault": "plain"},
        (kv_kid("k"), f"e30..{iv}.{text}.{tag}"): {"fault": "plain"},
    }
    assert run(tmp_path, script, shown_key(KEY), *(text for case in cases for text in case)) == list(cases.values())


def test_what_the_browser_seals_is_an_envelope_of_ours_each_with_an_iv_of_its_own(tmp_path: Path) -> None:
    script = """
        import { importKey, kvKid, seal, WS_KID } from "./seal.mjs";
        const key = await importKey(process.argv[2]);
        const made = [await seal(key, WS_KID, "☃"), await seal(key, WS_KID, ""), await seal(key, kvKid("k"), "☃")];
        console.log(JSON.stringify(made));
    """
    envelopes = [read_envelope(text) for text in run(tmp_path, script, shown_key(KEY))]
    opened = []
    for envelope, kid in zip(envelopes, (WS_KID, WS_KID, kv_kid("k")), strict=True):
        assert envelope is not None
        opened.append(unseal(KEY, kid, envelope))
    assert opened == ["☃".encode(), b"", "☃".encode()]
    assert len({envelope.iv for envelope in envelopes if envelope is not None}) == 3


# ---- room.js ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("close", RoomClose)
def test_the_room_comes_back_as_the_table_of_closes_says(tmp_path: Path, close: RoomClose) -> None:
    script = f"""
        import {{ Room }} from "./room.mjs";
        {BROWSER}
        const room = new Room("https://echo.test", "es_x"), states = [];
        room.addEventListener("link", ({{ detail }}) => states.push(detail.state));
        room.open();
        last().say(welcome());
        last().onclose({{ code: {close.value.code} }});
        await wait(500);
        console.log(JSON.stringify({{ states, sockets: sockets.length }}));
    """
    told = run(tmp_path, script)
    if close.value.come_back in (Return.NO, Return.WITH_NEW_TOKEN):
        final = "gone" if close is RoomClose.GONE else "closed"
        assert told == {"states": ["connecting", "open", final], "sockets": 1}
    else:
        assert told == {"states": ["connecting", "open", "lost"], "sockets": 2}


def test_the_room_comes_back_with_what_it_saw_last_and_the_subspaces_it_is_in(tmp_path: Path) -> None:
    script = f"""
        import {{ Room }} from "./room.mjs";
        {BROWSER}
        const room = new Room("http://echo.test:1", "es_x", {{ subs: ["a"], self: true }}), urls = [];
        const come = async () => {{
          last().onclose({{ code: 1006 }});
          await wait(2_000);
          urls.push(String(last().url));
        }};
        room.open();
        urls.push(String(last().url));
        last().say(welcome());
        room.join("b");
        room.leave("a");
        await come();
        last().say(welcome({{ recovered: true, seq: 12 }}));
        last().say({{ type: "msg", seq: 11 }});
        await come();
        last().say(welcome({{ epoch: "other", seq: 3 }}));
        await come();
        console.log(JSON.stringify([urls, last().protocol, asked[0]]));
    """
    urls, protocol, asked = run(tmp_path, script)
    base = "ws://echo.test:1/ws/s/es_x?"
    assert urls == [
        f"{base}self=1&presence=1&subs=a",
        f"{base}uid=ada&self=1&presence=1&subs=b&since=7&epoch=e",
        f"{base}uid=ada&self=1&presence=1&subs=b&since=11&epoch=e",
        f"{base}uid=ada&self=1&presence=1&subs=b&since=3&epoch=other",
    ]
    assert (protocol, asked) == ("echo.v1.json", ["HEAD", "/api/s/es_x/iam"])


def test_a_message_with_an_ack_is_not_asked_for_again_and_one_without_comes_back_with_its_conn(tmp_path: Path) -> None:
    script = f"""
        import {{ Room }} from "./room.mjs";
        {BROWSER}
        const room = new Room("https://echo.test", "es_x"), heard = [];
        room.addEventListener("msg", ({{ detail }}) => heard.push([detail.seq, detail.conn]));
        room.open();
        last().say(welcome());
        for (const text of ["taken", "unsure"]) room.send({{ text }}).catch(() => {{}});
        last().say({{ type: "ack", id: last().sent[0].id, seq: 8, delivered: 1 }});
        last().onclose({{ code: 1006 }});
        await wait(2_000);
        last().say(welcome({{ recovered: true, seq: 9, conn: "d" }}));
        last().say({{ type: "msg", seq: 9, conn: "c", replay: true }});
        console.log(JSON.stringify([last().url.searchParams.get("since"), heard]));
    """
    assert run(tmp_path, script) == ["8", [[9, "c"]]]


def test_a_space_that_ended_meanwhile_is_gone_and_a_gateway_that_does_not_answer_is_asked_less_and_less(
    tmp_path: Path,
) -> None:
    script = f"""
        import {{ Room }} from "./room.mjs";
        {BROWSER}
        const room = new Room("https://echo.test", "es_x"), waits = [];
        Math.random = () => 1;
        room.open();
        last().onclose({{ code: 1006 }});
        status = 503;
        for (let turn = 0; turn < 9; turn++) {{
          waits.push(...[...timers.values()].map((timer) => timer.wait));
          await wait(30_000);
        }}
        status = 404;
        await wait(30_000);
        console.log(JSON.stringify({{ waits, state: room.state, timers: timers.size, sockets: sockets.length }}));
    """
    told = run(tmp_path, script)
    assert told["waits"] == [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]
    assert (told["state"], told["timers"], told["sockets"]) == ("gone", 0, 1)


def test_a_message_is_settled_by_its_ack_its_error_or_the_loss_of_the_link(tmp_path: Path) -> None:
    script = f"""
        import {{ Room }} from "./room.mjs";
        {BROWSER}
        const room = new Room("https://echo.test", "es_x"), told = [];
        const say = async (...what) => {{
          told.push(await room.send(...what).then((ack) => ack.delivered, (error) => error.message));
        }};
        say(0);
        room.open();
        last().say(welcome());
        say({{ text: "hi" }}, {{ sub: "s" }});
        say(2);
        say(3);
        const {{ sent }} = last();
        last().say({{ type: "ack", id: sent[0].id, seq: 8, delivered: 5 }});
        last().say({{ type: "error", id: sent[1].id, error: "rate_limited", message: "slowly" }});
        last().onclose({{ code: 1012 }});
        await settled();
        console.log(JSON.stringify([told, sent[0]]));
    """
    told, first = run(tmp_path, script)
    assert told == [
        "There is no connection to the room at the moment.", 5, "slowly",
        "The connection was lost. Whether the message arrived is not known.",
    ]  # fmt: skip
    assert first == {"type": "msg", "data": {"text": "hi"}, "sub": "s", "id": first["id"]}


def test_a_link_that_is_silent_is_pinged_and_then_given_up(tmp_path: Path) -> None:
    script = f"""
        import {{ Room }} from "./room.mjs";
        {BROWSER}
        const room = new Room("https://echo.test", "es_x"), states = [];
        room.open();
        const socket = last();
        socket.say(welcome());
        await wait(30_000);
        states.push(room.state);
        socket.say({{ type: "pong" }});
        await wait(10_000);
        states.push(room.state);
        await wait(30_000);
        await wait(10_000);
        states.push(room.state);
        console.log(JSON.stringify([states, socket.sent, socket.isClosed]));
    """
    states, sent, is_closed = run(tmp_path, script)
    assert states == ["open", "open", "lost"]
    assert sent == [{"type": "ping"}] * 2
    assert is_closed


def test_a_link_with_an_access_token_shows_it_first_and_the_next_one_later(tmp_path: Path) -> None:
    script = f"""
        import {{ Room }} from "./room.mjs";
        {BROWSER}
        const tokens = ["ea_1", "ea_2"], states = [];
        const room = new Room("https://echo.test", "es_x", {{ accessToken: async () => tokens.shift() }});
        room.addEventListener("link", ({{ detail }}) => states.push([detail.state, detail.code]));
        room.open();
        const one = last();
        await one.onopen();
        room.authenticate("too early");
        one.say(welcome());
        room.authenticate("ea_next");
        one.onclose({{ code: 1012 }});
        await wait(500);
        await last().onopen();
        const second = last().sent;
        last().onclose({{ code: 1006 }});
        await wait(2_000);
        await last().onopen();
        console.log(JSON.stringify([one.sent, second, last().sent, states.at(-1)]));
    """
    first, second, third, state = run(tmp_path, script)
    assert [frame["access_token"] for frame in first] == ["ea_1", "ea_next"]
    assert {frame["type"] for frame in first} == {"auth"}
    assert [frame["access_token"] for frame in second] == ["ea_2"]
    assert (third, state) == ([], ["closed", 4401])


def test_a_link_whose_token_cannot_be_had_at_the_moment_is_tried_again(tmp_path: Path) -> None:
    script = f"""
        import {{ Room }} from "./room.mjs";
        {BROWSER}
        const accessToken = async () => {{ throw new Error("later"); }};
        const room = new Room("https://echo.test", "es_x", {{ accessToken }});
        room.open();
        await last().onopen();
        console.log(JSON.stringify([last().isClosed, room.state]));
    """
    assert run(tmp_path, script) == [True, "connecting"]


# ---- qr.js -----------------------------------------------------------------------------------------------------------

# Bytes that fill a version at the lowest level: segno pads what is shorter in its own way, which readers pass over.
FULL_VERSIONS = (17, 32, 53, 78, 106, 134, 154, 192, 230, 271, 321, 367, 425, 458, 520)


def test_qr_codes_are_those_of_segno_in_every_version(tmp_path: Path) -> None:
    script = """
        import { qrModules } from "./qr.mjs";
        const codes = JSON.parse(process.argv[2]).map((text) => qrModules(text).map((row) => row.map(Number).join("")));
        console.log(JSON.stringify(codes));
    """
    texts = [("https://gw.example/s/es_x#invite=ei_" * 20)[:length] for length in FULL_VERSIONS]
    for text, rows in zip(texts, run(tmp_path, script, json.dumps(texts)), strict=True):
        theirs = segno.make_qr(text.encode(), error="l", mask=3, boost_error=False, mode="byte")
        assert rows == ["".join(str(module) for module in row) for row in theirs.matrix], theirs.version


def test_text_that_no_code_holds_is_refused_with_words(tmp_path: Path) -> None:
    script = """
        import { qrModules } from "./qr.mjs";
        let said = null;
        try { qrModules("x".repeat(521)); } catch (error) { said = error.message; }
        console.log(JSON.stringify([said, qrModules("x".repeat(130)).length]));
    """
    assert run(tmp_path, script) == ["The link is too long for a QR code.", 41]
