"""What a store holds in memory of a space that is open: names, sizes, versions, ends; and what is under way.

Changed only by answers, in their order, so it says what is committed. Reading and writing are left to the stores; how
much there may be of anything, to the rules.
"""

from actors.space.store import FILE_OVERHEAD_BYTES, VALUE_OVERHEAD_BYTES, KeyInfo, KeyPage, StoredFile, Usage


class SpaceIndex:
    def __init__(self, keys: dict[str, KeyInfo], files: dict[str, StoredFile], subscriptions: int) -> None:
        self.keys = keys
        self.files = files
        self.subscriptions = subscriptions
        self.kv_bytes = sum(info.size for info in keys.values())
        self.file_bytes = sum(file.size for file in files.values())
        self.keys_under_way = 0
        self.kv_bytes_under_way = 0
        self.uploads = 0
        self.upload_bytes = 0
        self.subscriptions_under_way = 0
        self.writes_under_way = 0

    @property
    def is_idle(self) -> bool:
        return self.writes_under_way == 0 and self.uploads == 0

    @property
    def usage(self) -> Usage:
        return Usage(
            len(self.keys) + self.keys_under_way,
            self.kv_bytes + self.kv_bytes_under_way,
            len(self.files) + self.uploads,
            self.file_bytes + self.upload_bytes,
            self.subscriptions + self.subscriptions_under_way,
        )

    @property
    def disk_bytes(self) -> int:
        """What is there counts as this much of the disk."""
        overhead = VALUE_OVERHEAD_BYTES * len(self.keys) + FILE_OVERHEAD_BYTES * len(self.files)
        return self.kv_bytes + self.file_bytes + overhead

    # ── values ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def growth_by(self, key: str, size: int) -> tuple[int, int]:
        """By how many keys and bytes a write may make the space larger."""
        known = self.keys.get(key)
        return (1, size) if known is None else (0, max(0, size - known.size))

    def set_key(self, info: KeyInfo) -> None:
        self.drop_key(info.key)
        self.keys[info.key] = info
        self.kv_bytes += info.size

    def drop_key(self, key: str) -> None:
        known = self.keys.pop(key, None)
        if known is not None:
            self.kv_bytes -= known.size

    def live_key(self, key: str, now_ms: int) -> KeyInfo | None:
        info = self.keys.get(key)
        return None if info is None or info.expires_at_ms <= now_ms else info

    def expired(self, now_ms: int) -> list[str]:
        return [key for key, info in self.keys.items() if info.expires_at_ms <= now_ms]

    def next_expiry_ms(self) -> int | None:
        return min((info.expires_at_ms for info in self.keys.values()), default=None)

    def page(self, now_ms: int, prefix: str, after: str, limit: int) -> KeyPage:
        names = sorted(
            key
            for key, info in self.keys.items()
            if key > after and key.startswith(prefix) and info.expires_at_ms > now_ms
        )
        shown = names[:limit]
        return KeyPage(tuple(self.keys[key] for key in shown), shown[-1] if len(shown) < len(names) else None)

    # ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def add_file(self, file: StoredFile) -> None:
        self.drop_file(file.file_id)
        self.files[file.file_id] = file
        self.file_bytes += file.size

    def drop_file(self, file_id: str) -> None:
        known = self.files.pop(file_id, None)
        if known is not None:
            self.file_bytes -= known.size
