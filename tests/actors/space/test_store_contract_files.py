"""What every store of spaces does with files, held against each of them."""

import hashlib
from functools import partial

import pytest
import trio

from actors.space.sealing import CHUNK_BYTES
from actors.space.store import (
    FILE_OVERHEAD_BYTES,
    NOT_FOUND,
    OVERLOADED,
    Refused,
    SpaceStore,
    SpaceStoreLimits,
    StoredFile,
    Upload,
    Usage,
)
from tests.actors.log.shelves import bounded
from tests.actors.space.shelves import NOW_MS, A, B, F, G, H, Shelf, cancelled, read_all, upload

SIZES = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES, 5 * CHUNK_BYTES + 7]


def content_of(size: int) -> bytes:
    return hashlib.shake_128(b"%d" % size).digest(size)


async def begin(store: SpaceStore, space_id: str = A, file_id: str = F) -> Upload:
    begun = await store.begin_file(space_id, file_id, "file", "text/plain")
    assert not isinstance(begun, Refused), begun
    return begun


@pytest.mark.parametrize("size", SIZES)
@bounded
async def test_a_file_comes_back_as_it_was_sent_in_the_next_process_too(shelf: Shelf, size: int) -> None:
    content = content_of(size)
    expected = StoredFile(F, "näme", "text/plain", size, hashlib.sha256(content).hexdigest(), NOW_MS)
    async with await shelf.open(SpaceStoreLimits(upload_buffer_bytes_max=100_000)) as store:
        await store.create(A)
        pieces = [content[at : at + 30_001] for at in range(0, size, 30_001)]
        assert await upload(store, A, F, *pieces, name="näme") == expected
        assert await read_all(store, A, F) == content
    async with await shelf.open() as store:
        await store.open(A)
        assert store.list_files(A) == (expected,)
        assert store.file(A, F) == expected
        assert await read_all(store, A, F) == content
        assert store.usage(A) == Usage(files=1, file_bytes=size)


@pytest.mark.parametrize(
    ("start", "length"),
    [
        (0, 1),
        (CHUNK_BYTES - 1, 2),
        (CHUNK_BYTES, CHUNK_BYTES),
        (3 * CHUNK_BYTES - 5, 2 * CHUNK_BYTES),
        (5 * CHUNK_BYTES, 100),
        (5 * CHUNK_BYTES + 6, 1),
        (5 * CHUNK_BYTES + 7, 1),
        (10 * CHUNK_BYTES, 1),
        (7, 0),
    ],
)
@bounded
async def test_a_range_is_read_without_the_rest(shelf: Shelf, start: int, length: int) -> None:
    content = content_of(5 * CHUNK_BYTES + 7)
    async with await shelf.open() as store:
        await store.create(A)
        await upload(store, A, F, content)
        assert await store.read_file(A, F, start, length) == content[start : start + length]


@bounded
async def test_one_answer_has_no_more_of_a_file_than_its_bound(shelf: Shelf) -> None:
    async with await shelf.open(SpaceStoreLimits(read_bytes_max=1_000)) as store:
        await store.create(A)
        content = content_of(CHUNK_BYTES + 300)
        await upload(store, A, F, content)
        assert await store.read_file(A, F, CHUNK_BYTES - 100, 1 << 30) == content[CHUNK_BYTES - 100 :][:1_000]
        assert await read_all(store, A, F) == content


@bounded
async def test_a_file_is_unknown_until_it_is_finished_and_counts_from_its_first_byte(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        coming = await begin(store)
        assert await coming.append(b"123") is None
        assert (coming.file_id, coming.size) == (F, 3)
        assert (store.list_files(A), store.file(A, F), await store.read_file(A, F, 0, 1)) == ((), None, None)
        assert store.usage(A) == Usage(files=1, file_bytes=3)
        await coming.finish(NOW_MS)
        assert store.usage(A) == Usage(files=1, file_bytes=3)
        assert store.totals().bytes == 3 + FILE_OVERHEAD_BYTES


@bounded
async def test_an_aborted_upload_leaves_nothing(shelf: Shelf) -> None:
    async with await shelf.open(SpaceStoreLimits(upload_buffer_bytes_max=1)) as store:
        await store.create(A)
        async with await begin(store) as coming:
            await coming.append(content_of(2 * CHUNK_BYTES))
        await coming.abort()
        assert store.usage(A) == Usage()
        with pytest.raises(RuntimeError, match="over"):
            await coming.append(b"more")
        await upload(store, A, F, b"the id is free again: it was never published")
    async with await shelf.open() as store:
        await store.open(A)
        assert len(store.list_files(A)) == 1


@bounded
async def test_a_file_is_never_published_in_the_place_of_another(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        await upload(store, A, F, b"first")
        with pytest.raises(RuntimeError, match="once"):
            await store.begin_file(A, F, "n", "t")
        assert await read_all(store, A, F) == b"first"


@bounded
async def test_an_upload_that_a_close_interrupts_leaves_nothing(shelf: Shelf) -> None:
    store = await shelf.open(SpaceStoreLimits(upload_buffer_bytes_max=1))
    await store.create(A)
    coming = await begin(store)
    await coming.append(content_of(CHUNK_BYTES))
    await store.close()
    async with await shelf.open() as store:
        await store.open(A)
        assert store.usage(A) == Usage()


@bounded
async def test_a_cancelled_finish_publishes_or_leaves_nothing(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        async with await begin(store) as coming:
            await coming.append(b"123")
            await cancelled(partial(coming.finish, NOW_MS))
        whole = store.file(A, F) is not None
        assert store.usage(A) == (Usage(files=1, file_bytes=3) if whole else Usage())
        assert await store.read_file(A, F, 0, 3) == (b"123" if whole else None)


@bounded
async def test_a_cancelled_append_leaves_an_upload_that_can_be_aborted(shelf: Shelf) -> None:
    async with await shelf.open(SpaceStoreLimits(upload_buffer_bytes_max=1)) as store:
        await store.create(A)
        with trio.CancelScope() as scope:
            async with await begin(store) as coming:
                scope.cancel()
                await coming.append(b"123")
        assert store.usage(A) == Usage()


@bounded
async def test_more_uploads_at_a_time_than_the_bound_are_refused(shelf: Shelf) -> None:
    async with await shelf.open(SpaceStoreLimits(uploads_max=2)) as store:
        await store.create(A)
        await store.create(B)
        first, _ = await begin(store), await begin(store, B)
        assert await store.begin_file(A, G, "n", "t") == OVERLOADED
        await first.finish(NOW_MS)
        await begin(store, A, G)


@bounded
async def test_an_upload_into_a_space_that_ends_is_refused_and_leaves_nothing(shelf: Shelf) -> None:
    async with await shelf.open(SpaceStoreLimits(upload_buffer_bytes_max=1)) as store:
        await store.create(A)
        appending, finishing = await begin(store, A, F), await begin(store, A, G)
        await appending.append(b"123")
        await finishing.append(b"123")
        assert await store.end(A) is None
        assert await appending.append(b"456") == NOT_FOUND
        assert await finishing.finish(NOW_MS) == NOT_FOUND
        await appending.abort()
        await store.create(B)
        assert store.list_files(B) == ()


@bounded
async def test_files_are_listed_in_the_order_of_their_ids_and_can_be_deleted(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        await store.create(B)
        for file_id in (G, F):
            await upload(store, A, file_id, b"1234")
        await upload(store, B, H, b"5")
        assert [file.file_id for file in store.list_files(A)] == [F, G]
        assert await store.delete_file(A, H) is False
        assert await store.delete_file(A, F) is True
        assert await store.delete_file(A, F) is False
        assert await store.read_file(A, F, 0, 1) is None
        assert store.usage(A) == Usage(files=1, file_bytes=4)
        assert store.totals().bytes == 5 + 2 * FILE_OVERHEAD_BYTES
    async with await shelf.open() as store:
        await store.open(A)
        await store.open(B)
        assert [file.file_id for file in (*store.list_files(A), *store.list_files(B))] == [G, H]


@bounded
async def test_a_file_is_deleted_though_its_space_is_let_go_of_meanwhile_or_the_asker_is_gone(shelf: Shelf) -> None:
    async with await shelf.open() as store:
        await store.create(A)
        for file_id in (F, G):
            await upload(store, A, file_id, b"content")
        token = trio.lowlevel.current_trio_token()
        for _ in range(20):  # of two tasks that may both run, either may be first
            await store.open(A)
            token.run_sync_soon(store.release, A)
            assert await store.delete_file(A, H) is False
        await store.open(A)
        assert await store.delete_file(A, F) is True
        await cancelled(partial(store.delete_file, A, G))
        assert store.list_files(A) == ()
        assert store.totals().bytes == 0
