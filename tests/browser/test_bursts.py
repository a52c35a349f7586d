"""A room where much happens at once: the page draws seldom, and bounded lists."""

from contextlib import ExitStack

from tests.browser.chromium import Browser
from tests.browser.gateway import Space
from tests.browser.room import Room

DRAW_MS = 250
MEMBERS, TOGGLES = 8, 80  # within the rates of each connection and of the room
COUNT_DRAWS = """
    window.draws = 0;
    window.since = performance.now();
    new MutationObserver((records) => (draws += records.length)).observe(people, { childList: true });
"""
# Members of a room that nobody serves: all that happens is what the test says, and frames come when it says so.
FAKE_ROOM = """
    const { People } = await import("/assets/people.js");
    const frames = [], list = document.createElement("ul"), names = document.createElement("datalist");
    window.requestAnimationFrame = (draw) => frames.push(draw);
    const room = new EventTarget(), tell = (type, detail) => room.dispatchEvent(new CustomEvent(type, { detail }));
    let draws = 0;
    new MutationObserver((records) => (draws += records.length)).observe(list, { childList: true });
    const due = async () => { while (!frames.length) await new Promise((done) => setTimeout(done, 10)); };
    new People(list, names, () => {}).follow(room);
"""


def test_members_that_come_and_go_all_the_time_do_not_keep_the_page_busy(space: Space, anna: Browser) -> None:
    room = Room(anna, space.url)
    with ExitStack() as stack:
        many = [stack.enter_context(space.join(f"m{at}")) for at in range(MEMBERS)]
        room.sees_person(f"m{MEMBERS - 1}")
        anna.js(COUNT_DRAWS)
        for toggle in range(TOGGLES):
            for member in many:
                member.send(type=("join", "leave")[toggle % 2], subs=["q"])
        for member in many:
            member.send(type="join", subs=["the-end"])
        anna.until(
            lambda: sum("the-end" in one for one in room.people) == MEMBERS or None, "not all of the burst is shown"
        )
        draws, passed_ms = anna.js("return [draws, performance.now() - since]")
    assert 1 <= draws <= passed_ms / DRAW_MS + 1


def test_however_much_happens_before_a_frame_one_drawing_follows(space: Space, anna: Browser) -> None:
    room = Room(anna, space.url)
    room.sees_person(room.uid)  # its own list is drawn; what follows is of another
    script = """
        for (let at = 0; at < 500; at++) tell(at % 2 ? "leave" : "join", { conn: "c", uid: "u", subs: ["s"] });
        await due();
        const before = [draws, frames.length];
        await frames.pop()();
        await Promise.resolve();
        const after = [draws, frames.length];
        tell("join", { conn: "d", uid: "v" });
        await due();
        return [before, after, frames.length];
    """
    assert anna.js_async(FAKE_ROOM + script) == [[0, 1], [1, 0], 1]


def test_of_many_people_and_subspaces_some_are_shown_and_the_others_counted(space: Space, anna: Browser) -> None:
    room = Room(anna, space.url)
    room.sees_person(room.uid)  # its own list is drawn; what follows is of another
    script = """
        for (let at = 0; at < 256; at++) {
            const uid = `u${String(at).padStart(3, "0")}`, subs = [...Array(32).keys()].map((sub) => `${uid}-${sub}`);
            tell("join", { conn: uid, uid, subs });
            tell("join", { conn: `${uid}-2`, uid: "u000", subs });
        }
        await due();
        await frames.pop()();
        const items = [...list.children].map((item) => item.textContent);
        return [items.length, items[0], items.at(-2), items.at(-1), names.children.length];
    """
    count, first, last, rest, names = anna.js_async(FAKE_ROOM + script)
    assert (count, rest, names) == (101, "and 156 more", 200)
    assert first.endswith("u000-31 · and 8160 more")
    assert last.startswith("u099")


def test_messages_are_bounded_by_their_number_and_by_their_size(space: Space, anna: Browser) -> None:
    Room(anna, space.url)
    script = """
        const { MessageLog } = await import("/assets/messages.js");
        const frames = [], list = document.createElement("ul");
        window.requestAnimationFrame = (draw) => frames.push(draw);
        const log = new MessageLog(list, async ({ text }) => ({ text }));
        let draws = 0;
        new MutationObserver((records) => (draws += records.length)).observe(list, { childList: true });
        const draw = async () => {  // the page may ask for frames of its own meanwhile
            for (const had = list.lastChild; list.lastChild === had; await frames.shift()()) {
                while (!frames.length) await new Promise((done) => setTimeout(done, 10));
            }
        };
        const at = "2026-01-01T00:00:00Z", say = (text) => log.add({ uid: "u", at, text }, false);
        for (let number = 0; number < 2_000; number++) say(`m${number}`);
        await draw();
        const one = draws, many = [list.children.length, list.lastChild.textContent.endsWith("m1999")];
        for (let number = 0; number < 100; number++) say("x".repeat(60_000));
        await draw();
        const large = [list.children.length, list.textContent.length <= 1_000_000];
        say("y".repeat(2_000_000));
        await draw();
        return [one, many, large, list.children.length];
    """
    assert anna.js_async(script) == [1, [500, True], [16, True], 1]
