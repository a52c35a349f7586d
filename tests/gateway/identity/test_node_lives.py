"""A node's life: what is on the disk at each step, what a crash or a refusal leaves, and when an identity ends."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from trio.testing import MockClock
from ulid import ULID

from actors.bus.local_directory import LocalDirectory
from actors.bus.renewal import NotRenewed, Renewed
from actors.log.memory_store import MemoryDisk, MemoryStore
from actors.log.store import answered
from actors.node.moment import Moment
from actors.register.register import Register
from actors.register.register_rules import RENEWAL_OVERLAP_MS, Refusal, Trouble
from gateway.identity.leaf_files import BATCH
from gateway.identity.node_lives import LOOK_EVERY_S, Made, NodeLives, Wanted
from gateway.identity.tokens import Principal, TokenClass
from gateway.main.data_folder import FOREIGN_FILE, DataFolder
from schemas.canonical import digest
from schemas.certificates import Leaf
from schemas.closes import NodeClose
from schemas.manifest import Accepted, NodeIdentity
from schemas.projection import project
from tests.schemas.examples import ECHO_CAPABILITY

START_MS = 1_790_000_000_000
PUMP, VALVE = NodeIdentity("01hzx3k8q2v7n4t9r6w5y1c0ba", "acme"), NodeIdentity("01hzx3k8q2v7n4t9r6w5y1c0bb", "acme")
KEY, OTHER_KEY = (Ed25519PrivateKey.from_private_bytes(b * 32).public_key().public_bytes_raw() for b in (b"a", b"b"))


class FakeSessions:
    """One session a node, as the fleet has it."""

    def __init__(self) -> None:
        self.open: dict[str, Principal] = {}
        self.ended: list[tuple[str, NodeClose]] = []
        self.forgotten: list[str] = []
        self.forgets = True

    def end(self, node_id: str, close: NodeClose, is_over: Callable[[str, int], bool] = lambda *_: True) -> None:
        opened_by = self.open.get(node_id)
        if opened_by is not None and is_over(opened_by.jti, opened_by.issued_at_ms):
            del self.open[node_id]
            self.ended.append((node_id, close))

    async def forget(self, node_id: str) -> bool:
        await trio.lowlevel.checkpoint()
        if self.forgets:
            self.forgotten.append(node_id)
        return self.forgets


class Place:
    """A gateway's folder and log, and one start of it after the other."""

    def __init__(self, folder: DataFolder) -> None:
        self.folder = folder
        self.disk = MemoryDisk()
        self.now_ms = START_MS
        self.sessions = FakeSessions()

    async def start(self) -> NodeLives:
        store = MemoryStore(self.disk)
        self.directory = LocalDirectory(store)
        self.register = Register(store, self.directory)
        await self.register.load()
        await self.directory.load()
        lives = NodeLives(
            self.folder,
            self.register,
            self.directory,
            self.sessions,
            lambda: str(ULID()),
            lambda: Moment(wall_ms=self.now_ms, mono_s=trio.current_time()),
        )
        await lives.load()
        return lives

    def leaf_files(self) -> set[str]:
        return {file.stem for file in (self.folder.path / "leafs").glob("*.crt")}

    def logs_in(self, token: str | None) -> NodeClose | None:
        """What the register says to this token."""
        principal = self.principal(token)
        return self.register.refuses_login(principal.sub, principal.jti, principal.issued_at_ms, self.now_ms)

    def principal(self, token: str | None) -> Principal:
        principal = self.folder.verifier.verify(token, TokenClass.DEVICE_RUNTIME, self.now_ms)
        assert isinstance(principal, Principal)
        return principal

    def connect(self, lives: NodeLives, token: str | None) -> None:
        """A node comes with this token."""
        assert self.logs_in(token) is None
        principal = self.principal(token)
        self.sessions.open[principal.sub] = principal
        lives.logged_in(principal.sub, principal.jti)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with DataFolder.hold(tmp_path / "data", START_MS) as folder:
        yield Place(folder)


async def enrolled(lives: NodeLives, node: NodeIdentity = PUMP, name: str | None = None) -> Made:
    made = await lives.enroll([Wanted(node, name, {"site": "lab"})], "ada")
    assert not isinstance(made, Refusal)
    return made[0]


async def test_enrolled_node_has_an_identity_that_the_gateway_knows(place: Place) -> None:
    lives = await place.start()
    made = await enrolled(lives, name="pump-7")
    leaf = made.identity.leaf
    assert place.folder.certificates.resolve(leaf.kid) is not None
    assert place.leaf_files() == {leaf.kid}
    assert place.logs_in(made.identity.token) is None
    assert lives.resolve("pump-7", None) == PUMP
    assert place.directory.labels_of(PUMP.node_id).tag_texts == ("site=lab",)
    again = await place.start()
    assert again.resolve("pump-7", "acme") == PUMP


async def test_a_refused_enrolment_leaves_no_certificate(place: Place) -> None:
    lives = await place.start()
    await enrolled(lives, name="pump-7")
    before = place.leaf_files()
    taken = await lives.enroll(
        [Wanted(VALVE, "valve"), Wanted(NodeIdentity(str(ULID()).lower(), "acme"), "pump-7")], "ada"
    )
    assert taken == Refusal(Trouble.NAME_TAKEN, 1)
    place.disk.is_full = True
    assert await lives.enroll([Wanted(VALVE, "valve")], "ada") == Refusal(Trouble.NOT_WRITTEN)
    assert place.leaf_files() == before
    assert place.folder.certificates.leafs_of(VALVE.node_id) == ()
    place.disk.is_full = False
    assert not isinstance(await lives.enroll([Wanted(VALVE, "valve")], "ada"), Refusal)


async def test_a_disk_that_takes_no_certificate_refuses_the_enrolment(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = await place.start()

    def full(_: Sequence[Leaf]) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(place.folder, "keep", full)
        assert await lives.enroll([Wanted(PUMP, "pump-7")], "ada") == Refusal(Trouble.NOT_WRITTEN)
    assert place.register.find(PUMP.node_id) is None


async def test_revoked_node_is_refused_now_and_after_a_restart(place: Place) -> None:
    lives = await place.start()
    made = await enrolled(lives)
    place.connect(lives, made.identity.token)
    assert await lives.revoke(PUMP, "ada") is None
    assert place.sessions.ended == [(PUMP.node_id, NodeClose.FORBIDDEN)]
    assert place.logs_in(made.identity.token) is NodeClose.FORBIDDEN
    await place.start()
    assert place.logs_in(made.identity.token) is NodeClose.FORBIDDEN


async def test_a_manifest_that_came_in_between_is_removed_at_the_next_look(place: Place) -> None:
    lives = await place.start()
    await enrolled(lives)
    await lives.revoke(PUMP, "ada")
    await announced(place, PUMP)  # it was on its way
    await finished(lives)
    assert place.directory.find(PUMP.node_id) is None
    await place.start()
    assert place.directory.find(PUMP.node_id) is None


async def test_a_revocation_that_is_not_written_ends_nothing(place: Place) -> None:
    lives = await place.start()
    place.connect(lives, (await enrolled(lives)).identity.token)
    place.disk.is_full = True
    assert await lives.revoke(PUMP, "ada") == Refusal(Trouble.NOT_WRITTEN)
    assert place.sessions.ended == []


async def announced(place: Place, node: NodeIdentity) -> None:
    manifest = {
        "node_id": node.node_id,
        "capabilities": [ECHO_CAPABILITY],
        "issued_at_ms": START_MS,
        "expires_at_ms": START_MS + 1000,
    }
    accepted = Accepted(manifest, digest(manifest), project(manifest))
    await answered(lambda then: place.directory.announce(node, accepted, START_MS, then))


async def test_nothing_of_a_forgotten_node_is_kept_but_that_it_is_revoked(place: Place) -> None:
    lives = await place.start()
    made = await enrolled(lives, name="pump-7")
    await announced(place, PUMP)
    assert await lives.forget(PUMP, "ada") == Refusal(Trouble.NOT_REVOKED)
    await lives.revoke(PUMP, "ada")
    assert place.directory.find(PUMP.node_id) is None  # agents see it no more
    assert await lives.forget(PUMP, "ada") is True
    assert place.sessions.forgotten == [PUMP.node_id]
    assert b"pump-7" not in str(place.disk.streams).encode()
    for _ in range(2):  # now, and after a restart
        assert place.leaf_files() == set()
        assert place.directory.find(PUMP.node_id) is None
        assert list(place.directory.ids()) == []
        assert place.directory.named("acme", "pump-7") is None
        assert lives.resolve("pump-7", None) == Refusal(Trouble.UNKNOWN_NODE)
        assert place.logs_in(made.identity.token) is NodeClose.FORBIDDEN
        lives = await place.start()
    assert place.sessions.forgotten == [PUMP.node_id]
    assert not isinstance(await lives.enroll([Wanted(VALVE, "pump-7")], "ada"), Refusal)


async def test_what_is_forgotten_and_not_erased_is_erased_at_the_next_start(place: Place) -> None:
    lives = await place.start()
    await enrolled(lives)
    await announced(place, PUMP)
    await lives.revoke(PUMP, "ada")
    place.sessions.forgets = False  # its last connection is still being closed
    assert await lives.forget(PUMP, "ada") is False
    assert len(place.leaf_files()) == 1
    place.sessions.forgets = True
    await place.start()
    assert place.sessions.forgotten == [PUMP.node_id]
    assert place.directory.find(PUMP.node_id) is None
    assert place.leaf_files() == set()


# ---- renewal --------------------------------------------------------------------------------------------------------


async def renewed(lives: NodeLives, made: Made, key: bytes = KEY) -> tuple[str | None, bytes]:
    assert made.jti is not None
    answer = await lives.renew(PUMP, made.jti, made.identity.leaf.kid, key)
    assert isinstance(answer, Renewed)
    return answer.token, answer.certificate


async def test_a_renewal_gives_a_token_and_a_certificate_for_the_nodes_own_key(place: Place) -> None:
    lives = await place.start()
    made = await enrolled(lives)
    place.now_ms += 5000
    token, der = await renewed(lives, made)
    leaf = Leaf.from_der(der)
    assert (leaf.node_id, leaf.tenant, leaf.public_key) == (PUMP.node_id, "acme", KEY)
    assert token is not None
    assert place.logs_in(token) is None
    assert place.logs_in(made.identity.token) is None  # until the new one is used


@pytest.mark.parametrize("restarts", [False, True])
async def test_asked_once_more_a_renewal_answers_the_same(place: Place, restarts: bool) -> None:
    lives = await place.start()
    made = await enrolled(lives)
    first = await renewed(lives, made)
    place.now_ms += 60_000
    if restarts:
        lives = await place.start()
    assert await renewed(lives, made) == first
    assert len(place.leaf_files()) == 2


async def test_a_second_and_different_renewal_is_refused_and_leaves_nothing(place: Place) -> None:
    lives = await place.start()
    made = await enrolled(lives)
    await renewed(lives, made)
    before = place.leaf_files()
    assert made.jti is not None
    refused = await lives.renew(PUMP, made.jti, made.identity.leaf.kid, OTHER_KEY)
    assert refused is NotRenewed.SECOND_KEY
    assert place.leaf_files() == before


async def test_of_two_renewals_at_once_one_is_refused(place: Place) -> None:
    lives = await place.start()
    made = await enrolled(lives)
    answers: list[object] = []

    async def ask(key: bytes) -> None:
        assert made.jti is not None
        answers.append(await lives.renew(PUMP, made.jti, made.identity.leaf.kid, key))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, KEY)
        nursery.start_soon(ask, OTHER_KEY)
    assert sorted(isinstance(answer, Renewed) for answer in answers) == [False, True]
    assert NotRenewed.SECOND_KEY in answers
    assert len(place.leaf_files()) == 2


async def finished(lives: NodeLives) -> None:
    """One look of its own."""
    await lives._finish()  # noqa: SLF001


async def test_the_first_login_with_the_new_token_ends_the_old_identity(place: Place) -> None:
    lives = await place.start()
    made = await enrolled(lives)
    token, der = await renewed(lives, made)
    new_kid = Leaf.from_der(der).kid
    place.connect(lives, made.identity.token)  # with the old one: no news
    await finished(lives)
    assert place.leaf_files() == {new_kid, made.identity.leaf.kid}
    place.connect(lives, token)
    await finished(lives)
    assert place.leaf_files() == {new_kid}
    assert place.folder.certificates.resolve(made.identity.leaf.kid) is None
    assert place.sessions.ended == []  # the session is that of the new one
    for _ in range(2):
        assert place.logs_in(made.identity.token) is NodeClose.UNAUTHORIZED
        assert place.logs_in(token) is None
        await place.start()


async def test_after_a_day_the_old_identity_ends_though_the_new_one_was_never_used(place: Place) -> None:
    lives = await place.start()
    made = await enrolled(lives)
    place.connect(lives, made.identity.token)
    _, der = await renewed(lives, made)
    place.now_ms += RENEWAL_OVERLAP_MS - 1
    assert place.logs_in(made.identity.token) is None
    place.now_ms += 1
    assert place.logs_in(made.identity.token) is NodeClose.UNAUTHORIZED  # at once
    await finished(lives)
    assert place.leaf_files() == {Leaf.from_der(der).kid}
    assert place.sessions.ended == [(PUMP.node_id, NodeClose.UNAUTHORIZED)]


async def test_an_old_certificate_whose_file_came_back_does_not_count_after_a_restart(place: Place) -> None:
    lives = await place.start()
    made = await enrolled(lives)
    token, _ = await renewed(lives, made)
    place.connect(lives, token)
    await finished(lives)
    assert len(place.leaf_files()) == 1
    place.folder.keep([made.identity.leaf])  # as after a crash before it was removed
    place.folder.certificates.learn(made.identity.leaf)
    await place.start()
    assert place.folder.certificates.resolve(made.identity.leaf.kid) is None
    assert made.identity.leaf.kid not in place.leaf_files()


async def test_an_operators_renewal_works_for_a_node_that_no_register_knew(place: Place) -> None:
    old = place.folder.enroll(PUMP.node_id, "acme", str(ULID()), START_MS)
    lives = await place.start()
    assert lives.resolve(PUMP.node_id, None) == PUMP
    place.now_ms += 5000
    made = await lives.renew_for(PUMP, "ada")
    assert not isinstance(made, Refusal)
    assert place.logs_in(old.token) is None
    place.connect(lives, made.identity.token)
    await finished(lives)
    assert place.leaf_files() == {made.identity.leaf.kid}
    assert place.logs_in(old.token) is NodeClose.UNAUTHORIZED


async def test_it_looks_by_itself_at_once_after_a_login_and_every_minute(
    place: Place, autojump_clock: MockClock
) -> None:
    lives = await place.start()
    made = await enrolled(lives)
    looks: list[float] = []

    async def look() -> None:
        looks.append(trio.current_time())

    lives._finish = look  # type: ignore[method-assign]  # noqa: SLF001
    token, _ = await renewed(lives, made)
    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lives._run)  # noqa: SLF001
        await trio.sleep(LOOK_EVERY_S + 1)
        place.connect(lives, token)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert [round(look_s - began_s) for look_s in looks] == [LOOK_EVERY_S, LOOK_EVERY_S + 1]


async def test_where_tokens_come_from_elsewhere_only_the_certificate_is_renewed(place: Place) -> None:
    foreign = place.folder.node_token(PUMP.node_id, "acme", str(ULID()), START_MS)
    (place.folder.path / FOREIGN_FILE).write_text("keys.json\n")
    lives = await place.start()
    made = await enrolled(lives)
    assert (made.identity.token, made.jti) == ("", None)
    answer = await lives.renew(PUMP, "01HZXC0000000000000000J000", made.identity.leaf.kid, KEY)
    assert isinstance(answer, Renewed)
    assert answer.token is None
    place.sessions.open[PUMP.node_id] = replace(place.principal(foreign), jti="01HZXC0000000000000000J000")
    place.now_ms += RENEWAL_OVERLAP_MS
    await finished(lives)
    assert place.leaf_files() == {Leaf.from_der(answer.certificate).kid}
    assert place.sessions.ended == [(PUMP.node_id, NodeClose.SERVICE_RESTART)]  # its token is as good as before


async def test_a_revoked_node_renews_nothing(place: Place) -> None:
    lives = await place.start()
    made = await enrolled(lives)
    await lives.revoke(PUMP, "ada")
    assert made.jti is not None
    assert await lives.renew(PUMP, made.jti, made.identity.leaf.kid, KEY) is NotRenewed.NODE_REVOKED
    assert await lives.renew_for(PUMP, "ada") == Refusal(Trouble.REVOKED)
    assert len(place.leaf_files()) == 1


# ---- what ends an identity, and what does not -----------------------------------------------------------------------


async def renewed_by_operator(lives: NodeLives) -> Made:
    made = await lives.renew_for(PUMP, "ada")
    assert not isinstance(made, Refusal)
    return made


async def test_a_used_identity_is_noted_at_the_next_look_if_the_log_refused_it(place: Place) -> None:
    lives = await place.start()
    made = await enrolled(lives)
    token, _ = await renewed(lives, made)
    place.connect(lives, token)
    place.disk.is_full = True
    await finished(lives)
    place.disk.is_full = False
    await finished(lives)
    assert place.logs_in(made.identity.token) is NodeClose.UNAUTHORIZED


async def test_a_login_with_an_older_renewal_ends_nothing_in_favour_of_a_newer_one(place: Place) -> None:
    lives = await place.start()
    await enrolled(lives)
    place.now_ms += 5000
    first = await renewed_by_operator(lives)
    place.connect(lives, first.identity.token)
    place.now_ms += 5000
    await renewed_by_operator(lives)
    await finished(lives)
    assert place.logs_in(first.identity.token) is None
    assert place.sessions.ended == []


@pytest.mark.parametrize("step_ms", [300, -3_000_000])
async def test_a_renewal_soon_after_another_or_before_it_by_the_clock_is_good(place: Place, step_ms: int) -> None:
    lives = await place.start()
    made = await enrolled(lives)
    place.now_ms += 3_600_000
    first = await renewed_by_operator(lives)
    place.connect(lives, first.identity.token)
    await finished(lives)
    place.now_ms += step_ms
    second = await renewed_by_operator(lives)
    again = await enrolled(lives)
    await place.start()
    for identity in (second.identity, again.identity):
        assert identity.leaf.kid in place.leaf_files()
    assert place.logs_in(again.identity.token) is None
    assert place.logs_in(made.identity.token) is NodeClose.UNAUTHORIZED


async def test_renewing_an_unused_renewal_ends_the_oldest_identity_at_once(place: Place) -> None:
    lives = await place.start()
    made = await enrolled(lives)
    place.connect(lives, made.identity.token)
    place.now_ms += 5000
    token, der = await renewed(lives, made)
    place.now_ms += 5000
    again = await lives.renew(PUMP, place.principal(token).jti, Leaf.from_der(der).kid, OTHER_KEY)
    assert isinstance(again, Renewed)
    assert place.sessions.ended == [(PUMP.node_id, NodeClose.UNAUTHORIZED)]
    assert place.folder.certificates.resolve(made.identity.leaf.kid) is None
    assert made.identity.leaf.kid not in place.leaf_files()


async def test_a_node_that_was_enrolled_again_outlives_a_lost_renewal_and_can_renew(place: Place) -> None:
    lives = await place.start()
    made = await enrolled(lives)
    place.now_ms += 5000
    await renewed(lives, made)  # granted, and its key is lost
    place.now_ms += 3_600_000
    again = await enrolled(lives)
    place.connect(lives, again.identity.token)
    place.now_ms += RENEWAL_OVERLAP_MS
    await finished(lives)
    assert place.sessions.ended == []
    assert place.logs_in(again.identity.token) is None
    token, _ = await renewed(lives, again, OTHER_KEY)
    place.connect(lives, token)
    await finished(lives)
    assert place.logs_in(made.identity.token) is NodeClose.UNAUTHORIZED


async def test_a_token_that_was_made_while_the_clock_was_ahead_ends_with_its_identity(place: Place) -> None:
    lives = await place.start()
    place.now_ms += 3_600_000
    made = await enrolled(lives)
    place.now_ms -= 3_600_000  # set right
    token, _ = await renewed(lives, made)
    place.connect(lives, token)
    await finished(lives)
    assert place.logs_in(made.identity.token) is NodeClose.UNAUTHORIZED
    assert place.folder.certificates.resolve(made.identity.leaf.kid) is None


async def test_a_revocation_waits_for_no_long_enrolment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    lives = await place.start()
    await enrolled(lives)
    revoked_after: list[int] = []
    keep, kept = place.folder.keep, list[Leaf]()

    def slow(leafs: Sequence[Leaf]) -> None:
        keep(leafs)
        kept.extend(leafs)
        trio.from_thread.run(revoke)  # while it is under way

    async def revoke() -> None:
        if not revoked_after:
            revoked_after.append(len(kept))
            assert await lives.revoke(PUMP, "ada") is None

    monkeypatch.setattr(place.folder, "keep", slow)
    many = [Wanted(NodeIdentity(str(ULID()).lower(), "acme"), f"n{n}") for n in range(3 * BATCH)]
    assert not isinstance(await lives.enroll(many, "ada"), Refusal)
    assert revoked_after == [BATCH]


async def test_an_enrolment_that_is_cancelled_leaves_no_certificate(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = await place.start()
    await enrolled(lives)
    before = place.leaf_files()
    with trio.CancelScope() as scope:
        keep = place.folder.keep

        def cancelled(leafs: Sequence[Leaf]) -> None:
            keep(leafs)
            trio.from_thread.run_sync(scope.cancel)

        monkeypatch.setattr(place.folder, "keep", cancelled)
        await lives.enroll([Wanted(NodeIdentity(str(ULID()).lower(), "acme")) for _ in range(2 * BATCH)], "ada")
    assert scope.cancelled_caught
    assert place.leaf_files() == before
