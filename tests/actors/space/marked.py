"""A space full of marked things, to be looked for later."""

from actors.space.sqlite_space_store import SqliteSpaceStore
from tests.actors.space.shelves import NOW_MS, A, F, G, put, read_all, upload

VALUE, NAME, FILE, TOKEN = b"MARKED-VALUE", b"MARKED-NAME", b"MARKED-FILE", b"es_MARKED-TOKEN"
CONTENT = b"MARKED-CONTENT" * 10_000
ENDPOINT, SUBSCRIBED = b"MARKED-ENDPOINT", b"MARKED-SUBSCRIPTION"
MARKS = (VALUE, NAME, FILE, TOKEN, CONTENT[:14], ENDPOINT, SUBSCRIBED)


async def fill(store: SqliteSpaceStore, space_id: str = A) -> None:
    await store.create(space_id)
    await put(store, space_id, NAME.decode(), VALUE)
    await put(store, space_id, f"{NAME.decode()}.2", VALUE * 5_000)
    await put(store, space_id, "rewritten", VALUE)
    await put(store, space_id, "rewritten", TOKEN)
    await upload(store, space_id, F, CONTENT, name=FILE.decode())
    await upload(store, space_id, G, CONTENT, name=FILE.decode())
    await store.put_subscription(space_id, ENDPOINT.decode(), SUBSCRIBED)


async def holds_all(store: SqliteSpaceStore, space_id: str = A) -> bool:
    assert await store.open(space_id)
    entry = await store.get(space_id, NAME.decode(), NOW_MS)
    names = [file.name for file in store.list_files(space_id)]
    whole = [await read_all(store, space_id, file_id) == CONTENT for file_id in (F, G)]
    subscribed = [each.data for each in await store.subscriptions(space_id)] == [SUBSCRIBED]
    return entry is not None and entry.value == VALUE and names == [FILE.decode()] * 2 and all(whole) and subscribed
