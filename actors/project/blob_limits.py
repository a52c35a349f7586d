"""Every bound of the store of contents, each with what happens when it is reached."""

import msgspec


class BlobLimits(msgspec.Struct, frozen=True):
    uploads_max: int = 64  # unfinished at a time, of all projects; the next one is 503 `overloaded`
    upload_buffer_bytes_max: int = 256 * 1024  # held of an upload; then they are written
    threads_max: int = 4  # that write, sync and remove at a time; the next piece waits for one


DEFAULT_LIMITS = BlobLimits()
