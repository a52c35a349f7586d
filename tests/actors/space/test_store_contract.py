"""What every store of spaces does, held against each of them. Files are in `test_store_contract_files`."""

from functools import partial

import pytest
import trio

from actors.log.store import UnreadableError
from actors.space.store import (
    NOT_FOUND,
    OVERLOADED,
    VALUE_OVERHEAD_BYTES,
    Entry,
    KeyInfo,
    KeyPage,
    PutAnswer,
    SpaceStore,
    SpaceStoreLimits,
    Subscription,
    Usage,
    VersionConflict,
    Written,
)
from tests.actors.log.shelves import bounded, in_order
from tests.actors.space.shelves import LATER_MS, NOW_MS, A, B, C, F, Shelf, cancelled, put, upload


async def put_if(store: SpaceStore, key: str, expected_version: int, now_ms: int = NOW_MS) -> PutAnswer:
    return await store.put(A, key, b"v", now_ms=now_ms, expires_at_ms=now_ms + 1_000, expected_version=expected_version)


# ── spaces ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@bounded
async def test_a_created_space_is_open_and_found_by_the_next_process(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        assert await store.create(B) is None
        assert await store.create(A) is None
        await put(store, A, "k")
    async with await shelf.open() as store:
        assert store.space_ids() == (A, B)
        assert await store.open(A)
        assert await store.open(A)
        assert not await store.open(C)
        assert store.usage(A).keys == 1


@bounded
async def test_a_space_that_is_there_and_not_open_is_the_callers_mistake(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
    async with await shelf.open() as store:
        with pytest.raises(RuntimeError, match="not open"):
            await store.get(A, "k", NOW_MS)
        with pytest.raises(RuntimeError, match="not open"):
            await put(store, A, "k")
        with pytest.raises(RuntimeError, match="once"):
            await store.create(A)


@pytest.mark.parametrize("bad", ["", "keys", A.upper(), f"{A}\n", f"../{A}", A[:-1] + "/", A[:-1] + "u", f"{A}.new"])
@bounded
async def test_only_a_lower_case_ulid_becomes_part_of_a_path(shelf: Shelf, bad: str) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        for ask in (
            partial(store.create, bad),
            partial(store.open, bad),
            partial(store.end, bad),
            partial(store.begin_file, A, bad, "n", "t"),
            partial(store.delete_file, A, bad),
        ):
            with pytest.raises(ValueError, match="lower-case ULID"):
                await ask()


@bounded
async def test_an_ended_space_is_not_found_by_what_writes_and_empty_for_what_reads(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        await put(store, A, "k")
        sealed = store.seal(A, b"event")
        assert sealed is not None
        assert await store.end(A) is None
        assert await store.put(A, "k", b"", now_ms=NOW_MS, expires_at_ms=LATER_MS) == NOT_FOUND
        assert await store.delete(A, "k", NOW_MS) == NOT_FOUND
        assert await store.sweep_expired(A, NOW_MS) == NOT_FOUND
        assert await store.begin_file(A, B, "n", "t") == NOT_FOUND
        assert await store.delete_file(A, B) == NOT_FOUND
        assert await store.put_subscription(A, "e", b"") == NOT_FOUND
        assert await store.delete_subscription(A, "e") == NOT_FOUND
        assert await store.get(A, "k", NOW_MS) is None
        assert await store.read_file(A, B, 0, 1) is None
        assert await store.subscriptions(A) == ()
        assert store.list_keys(A, NOW_MS) == KeyPage((), None)
        assert (store.list_files(A), store.file(A, B), store.next_expiry_ms(A)) == ((), None, None)
        assert store.usage(A) == Usage()
        assert store.seal(A, b"") is None
        assert store.unseal(A, sealed) is None
        assert not await store.open(A)
        assert store.space_ids() == ()


@bounded
async def test_ending_a_space_again_or_one_that_never_was_does_nothing(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        await store.create(B)
        await put(store, B, "k")
        for space_id in (A, A, C):
            assert await store.end(space_id) is None
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(store.end, A)
        assert store.usage(B).keys == 1
        assert (store.space_ids(), store.totals().spaces) == ((B,), 1)


@bounded
async def test_a_cancelled_end_ends(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        await cancelled(partial(store.end, A))
        assert store.space_ids() == ()


@bounded
async def test_a_cancelled_creation_is_whole_or_nothing(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await cancelled(partial(store.create, A))
        there = store.space_ids() == (A,)
        assert await store.open(A) == there
        if there:
            assert await put(store, A, "k") == 1


@bounded
async def test_a_released_space_can_be_opened_again(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        await put(store, A, "k", b"value")
        assert store.release(A)
        assert store.release(A)
        with pytest.raises(RuntimeError, match="not open"):
            store.usage(A)
        assert store.totals().bytes == 5 + VALUE_OVERHEAD_BYTES
        assert await store.open(A)
        assert store.list_keys(A, NOW_MS).keys == (KeyInfo("k", 1, 5, LATER_MS),)


@bounded
async def test_a_space_with_an_upload_under_way_is_not_released(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        upload = await store.begin_file(A, B, "n", "t")
        assert not store.release(A)
        await upload.abort()  # type: ignore[union-attr]
        assert store.release(A)


@bounded
async def test_what_one_space_sealed_opens_there_alone(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        await store.create(B)
        sealed = store.seal(A, b"an event")
        assert sealed is not None
        assert b"event" not in sealed
        assert store.seal(A, b"an event") != sealed
        for wrong in (sealed[:-1], sealed[:3], b"", sealed[:-1] + bytes([sealed[-1] ^ 1])):
            with pytest.raises(UnreadableError):
                store.unseal(A, wrong)
        with pytest.raises(UnreadableError):
            store.unseal(B, sealed)
    async with await shelf.open() as store:  # nobody has opened it: a start reads its events first
        assert store.unseal(A, sealed) == b"an event"


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("value", [b"", b"text", bytes(range(256)) * 1024])
@bounded
async def test_a_value_comes_back_as_it_was_put_in_the_next_process_too(shelf: Shelf, value: bytes) -> None:
    entry = Entry("k", value, 1, NOW_MS, LATER_MS, encrypted=True)
    async with await shelf.open() as store:
        await store.create(A)
        written = await store.put(A, "k", value, now_ms=NOW_MS, expires_at_ms=LATER_MS, encrypted=True)
        assert written == Written(1, is_new=True)
        assert await store.get(A, "k", NOW_MS) == entry
        assert await store.get(A, "K", NOW_MS) is None
    async with await shelf.open() as store:
        await store.open(A)
        assert await store.get(A, "k", NOW_MS) == entry
        assert await store.get(A, "k", NOW_MS) == entry


@bounded
async def test_versions_count_all_writes_of_the_room_and_are_never_used_again(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        await store.create(B)
        assert [await put(store, A, key) for key in ("a", "b", "a")] == [1, 2, 3]
        assert await put(store, B, "a") == 1
        assert await store.delete(A, "a", NOW_MS) is True
        assert await store.delete(A, "b", NOW_MS) is True
    async with await shelf.open() as store:
        await store.open(A)
        assert await put(store, A, "a") == 4
        await store.sweep_expired(A, LATER_MS)
    async with await shelf.open() as store:
        await store.open(A)
        assert await put(store, A, "a") == 5


@bounded
async def test_a_write_at_another_version_than_expected_is_a_conflict_that_names_the_right_one(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        assert await put_if(store, "k", 1) == VersionConflict(0)
        assert await put_if(store, "k", 0) == Written(1, is_new=True)
        assert await put_if(store, "k", 0) == VersionConflict(1)
        assert await put_if(store, "k", 1) == Written(2, is_new=False)
        assert await put_if(store, "k", 1) == VersionConflict(2)
        assert await put_if(store, "k", 2, LATER_MS) == VersionConflict(0)
        assert await put_if(store, "k", 0, LATER_MS) == Written(3, is_new=True)


@bounded
async def test_of_several_writes_that_expect_one_version_exactly_one_wins(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        answers = await in_order(*(partial(put_if, store, "k", 0) for _ in range(20)))
        assert answers == [Written(1, is_new=True)] + [VersionConflict(1)] * 19


@bounded
async def test_writes_are_taken_in_the_order_of_the_calls(shelf: Shelf) -> None:
    async with await shelf.open(SpaceStoreLimits(batch_writes_max=7)) as store:
        await store.create(A)
        versions = await in_order(*(partial(put, store, A, "k", b"%d" % number) for number in range(50)))
        assert versions == list(range(1, 51))
        entry = await store.get(A, "k", NOW_MS)
        assert entry is not None
        assert entry.value == b"49"
        assert store.usage(A) == Usage(keys=1, kv_bytes=2)


@bounded
async def test_a_key_of_another_version_than_expected_is_not_removed(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        await put(store, A, "k")
        await put(store, A, "k")
        assert await store.delete(A, "k", NOW_MS, expected_version=1) == VersionConflict(2)
        assert await store.get(A, "k", NOW_MS) is not None
        assert await store.delete(A, "k", NOW_MS, expected_version=2) is True
        assert await store.delete(A, "k", NOW_MS, expected_version=2) is False
        assert store.usage(A).keys == 0


@bounded
async def test_a_key_is_unknown_from_the_instant_of_its_expiry(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        await put(store, A, "k")
        assert await store.get(A, "k", LATER_MS - 1) is not None
        assert len(store.list_keys(A, LATER_MS - 1).keys) == 1
        assert await store.get(A, "k", LATER_MS) is None
        assert store.list_keys(A, LATER_MS).keys == ()
        assert await store.delete(A, "k", LATER_MS) is False
        assert store.usage(A).keys == 0


@bounded
async def test_a_sweep_removes_what_has_expired_and_nothing_else(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        assert store.next_expiry_ms(A) is None
        for number in range(4):
            await put(store, A, f"k{number}", b"12", expires_at_ms=NOW_MS + number)
        assert store.next_expiry_ms(A) == NOW_MS
        assert store.usage(A).keys == 4
        assert await store.sweep_expired(A, NOW_MS + 1) == 2
        assert await store.sweep_expired(A, NOW_MS + 1) == 0
        assert store.next_expiry_ms(A) == NOW_MS + 2
        assert store.usage(A) == Usage(keys=2, kv_bytes=4)
    async with await shelf.open() as store:
        await store.open(A)
        assert [info.key for info in store.list_keys(A, NOW_MS).keys] == ["k2", "k3"]


@bounded
async def test_when_the_next_key_expires_is_known_of_spaces_that_are_not_open_too(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        for space_id in (A, B):
            await store.create(space_id)
        assert store.next_expiry_ms(A) is None
        await put(store, A, "k", expires_at_ms=LATER_MS + 5)
        await put(store, A, "l", expires_at_ms=LATER_MS)
        assert (store.next_expiry_ms(A), store.next_expiry_ms(B), store.next_expiry_ms(C)) == (LATER_MS, None, None)
        assert store.release(A)
        assert store.next_expiry_ms(A) == LATER_MS
    async with await shelf.open() as store:
        assert (store.next_expiry_ms(A), store.next_expiry_ms(B)) == (LATER_MS, None)
        await store.open(A)
        await store.sweep_expired(A, LATER_MS)
        assert store.next_expiry_ms(A) == LATER_MS + 5


@bounded
async def test_keys_are_listed_by_prefix_in_order_a_page_at_a_time(shelf: Shelf) -> None:
    async with await shelf.open(SpaceStoreLimits(page_keys_max=3)) as store:
        await store.create(A)
        for key in ("b", "a.3", "a.1", "A", "a.2", "a", "a.4"):
            await put(store, A, key)
        names, after, pages = [], "", 0
        while True:
            page = store.list_keys(A, NOW_MS, "a", after, 2)
            names += [info.key for info in page.keys]
            pages += 1
            if page.next_after is None:
                break
            after = page.next_after
        assert (names, pages) == (["a", "a.1", "a.2", "a.3", "a.4"], 3)
        assert len(store.list_keys(A, NOW_MS, limit=100).keys) == 3
        assert len(store.list_keys(A, NOW_MS, limit=0).keys) == 1
        assert store.list_keys(A, NOW_MS, "x") == KeyPage((), None)


@bounded
async def test_a_cancelled_write_is_done_and_counted(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        await cancelled(partial(put, store, A, "k", b"123"))
        assert await put(store, A, "l", b"4") == 2
        assert store.usage(A) == Usage(keys=2, kv_bytes=4)
        entry = await store.get(A, "k", NOW_MS)
        assert entry is not None
        assert entry.value == b"123"
        await cancelled(partial(store.delete, A, "k", NOW_MS))
        assert await put(store, A, "l", b"5") == 3
        assert store.usage(A) == Usage(keys=1, kv_bytes=1)


@bounded
async def test_a_full_queue_refuses_at_once_and_leaves_nothing_counted(shelf: Shelf) -> None:
    async with await shelf.open(SpaceStoreLimits(queue_writes_max=3)) as store:
        await store.create(A)
        answers: list[PutAnswer] = []

        async def write(key: str) -> None:
            answers.append(await store.put(A, key, b"v", now_ms=NOW_MS, expires_at_ms=LATER_MS))

        async with trio.open_nursery() as nursery:  # all of them in one turn of the event loop
            for number in range(5):
                nursery.start_soon(write, f"k{number}")
        assert answers.count(OVERLOADED) == 2
        assert {Written(1, True), Written(2, True), Written(3, True)} <= set(answers)
        assert store.usage(A) == Usage(keys=3, kv_bytes=3)
        assert await put(store, A, "one more") == 4


@bounded
async def test_what_is_under_way_counts_before_it_is_answered(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        seen: list[Usage] = []

        async def write(key: str, value: bytes) -> None:
            await put(store, A, key, value)

        async def look() -> None:
            seen.append(store.usage(A))
            await trio.lowlevel.checkpoint()

        await in_order(partial(write, "k", b"123"), look, partial(write, "l", b"4567"), look)
        assert seen == [Usage(keys=1, kv_bytes=3), Usage(keys=2, kv_bytes=7)]
        assert store.usage(A) == Usage(keys=2, kv_bytes=7)


@bounded
async def test_totals_count_every_space_open_or_not(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        await store.create(B)
        await put(store, A, "k", b"123")
        await put(store, B, "k", b"12")
        await put(store, B, "k", b"1234")
        assert (store.totals().spaces, store.totals().bytes) == (2, 7 + 2 * VALUE_OVERHEAD_BYTES)
    async with await shelf.open() as store:
        assert (store.totals().spaces, store.totals().bytes) == (2, 7 + 2 * VALUE_OVERHEAD_BYTES)
        await store.open(A)
        await store.delete(A, "k", NOW_MS)
        assert store.totals().bytes == 4 + VALUE_OVERHEAD_BYTES
        await store.end(B)
        assert (store.totals().spaces, store.totals().bytes) == (1, 0)
        assert 0.0 < store.disk_free_ratio() <= 1.0


# ── subscriptions ─────────────────────────────────────────────────────────────────────────────────────────────────────


@bounded
async def test_a_subscription_is_replaced_by_its_endpoint(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        assert await store.put_subscription(A, "https://b", b"1") is True
        assert await store.put_subscription(A, "https://a", b"2") is True
        assert await store.put_subscription(A, "https://b", b"3") is False
        assert store.usage(A).subscriptions == 2
    async with await shelf.open() as store:
        await store.open(A)
        expected = (Subscription("https://a", b"2"), Subscription("https://b", b"3"))
        assert await store.subscriptions(A) == expected
        assert await store.delete_subscription(A, "https://a") is True
        assert await store.delete_subscription(A, "https://a") is False
        assert await store.subscriptions(A) == expected[1:]
        assert store.usage(A).subscriptions == 1


# ── ending ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@bounded
async def test_a_closed_store_says_so_and_its_watchers_are_released(shelf: Shelf) -> None:
    store = await shelf.open()
    await store.create(A)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.watch)
        await store.close()
    await store.close()
    with pytest.raises(trio.ClosedResourceError):
        await put(store, A, "k")


@bounded
async def test_what_lies_under_a_key_is_told_until_it_is_swept_out(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        version = await put(store, A, "k", b"four", LATER_MS)
        assert store.key_info(A, "k") == KeyInfo("k", version, 4, LATER_MS)
        assert store.key_info(A, "other") is None
        assert store.key_info(B, "k") is None
        await store.sweep_expired(A, LATER_MS)
        assert store.key_info(A, "k") is None


@bounded
async def test_usages_are_told_of_spaces_that_are_open_and_that_are_not_and_of_no_others(shelf: Shelf) -> None:
    has = {A: Usage(keys=2, kv_bytes=5, files=1, file_bytes=7, subscriptions=1), B: Usage()}
    async with await shelf.open() as store:
        await store.create(A)
        await store.create(B)
        await put(store, A, "k", b"123")
        await put(store, A, "l", b"45")
        await upload(store, A, F, b"content")
        await store.put_subscription(A, "https://a", b"1")
        assert await store.usages([A, B, C]) == has
        assert store.release(A)
        assert await store.usages([A, B]) == has
        assert await store.usages([]) == {}
    async with await shelf.open() as store:
        assert await store.usages([A, B]) == has
        await store.end(A)
        assert await store.usages([A, B]) == {B: Usage()}


@bounded
async def test_a_look_at_whether_writes_are_taken_changes_nothing(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        version = await put(store, A, "k")
        assert await store.takes_writes()
        assert await put(store, A, "k") == version + 1
    async with await shelf.open(SpaceStoreLimits(queue_writes_max=0)) as store:
        assert await store.takes_writes()  # that many want to write is no fault of the disk
        await store.open(A)
        assert (store.usage(A).keys, store.totals().spaces) == (1, 1)
    with pytest.raises(trio.ClosedResourceError):
        await store.takes_writes()


@bounded
async def test_expired_values_are_swept_out_of_a_space_that_is_not_open_and_it_stays_so(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        await put(store, A, "old", b"123", expires_at_ms=NOW_MS + 10)
        await put(store, A, "later", b"45", expires_at_ms=NOW_MS + 20)
        await put(store, A, "last", b"6", expires_at_ms=LATER_MS)
    async with await shelf.open() as store:
        assert await store.sweep_expired(A, NOW_MS + 9) == 0
        assert await store.sweep_expired(A, NOW_MS + 10) == 1
        assert (store.totals().bytes, store.next_expiry_ms(A)) == (3 + 2 * VALUE_OVERHEAD_BYTES, NOW_MS + 20)
        with pytest.raises(RuntimeError, match="not open"):
            store.usage(A)
        await cancelled(partial(store.sweep_expired, A, NOW_MS + 20))
        assert await store.open(A)
        await store.sweep_expired(A, NOW_MS + 20)
        assert store.usage(A) == Usage(keys=1, kv_bytes=1)
        assert await store.sweep_expired(A, LATER_MS) == 1
        assert (store.totals().bytes, store.next_expiry_ms(A)) == (0, None)
        assert await store.sweep_expired(B, LATER_MS) == NOT_FOUND


@bounded
async def test_a_space_that_is_opened_while_it_is_swept_has_nothing_that_is_gone(shelf: Shelf) -> None:
    for is_first in (True, False):
        async with await shelf.open() as store:
            space_id = A if is_first else B
            await store.create(space_id)
            await put(store, space_id, "old", b"123", expires_at_ms=NOW_MS + 10)
            await put(store, space_id, "new", b"4", expires_at_ms=LATER_MS)
            assert store.release(space_id)
            async with trio.open_nursery() as nursery:
                if is_first:
                    nursery.start_soon(store.open, space_id)
                nursery.start_soon(store.sweep_expired, space_id, NOW_MS + 10)
                nursery.start_soon(store.open, space_id)
            assert store.usage(space_id) == Usage(keys=1, kv_bytes=1)
            await store.end(space_id)


@bounded
async def test_text_that_cannot_be_encoded_is_the_callers_mistake_and_harms_nobody_else(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        for wrong in (
            partial(put, store, A, "\ud800", b"v"),
            partial(store.delete, A, "\ud800", NOW_MS),
            partial(store.put_subscription, A, "https://\udfff", b"data"),
            partial(store.delete_subscription, A, "https://\udfff"),
            partial(store.begin_file, A, F, "\ud800", "text/plain"),
            partial(store.begin_file, A, F, "name", "\ud800"),
        ):
            with pytest.raises(ValueError, match="surrogates"):
                await wrong()
        assert await store.get(A, "\ud800", NOW_MS) is None
        assert (store.usage(A), store.totals().bytes) == (Usage(), 0)
        await put(store, A, "k", b"v")
        assert store.release(A)
