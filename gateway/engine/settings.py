"""`[engine]`: the log and its neighbours on NATS JetStream, and every bound of what a gateway does there."""

import msgspec

from actors.engine.settings import DEFAULT_PRESENCE, PresenceSettings


class EngineSettings(msgspec.Struct, frozen=True):
    """Each bound with what happens when it is reached."""

    prefix: str = "hg"  # of all subjects and objects: two fleets on one NATS have two
    replicas: int = 3  # of each object, when it is made; fewer than this in one that is there are a problem at start
    log_bytes_max: int = 10 * 1024**3  # of the log, when it is made; at it appends are refused (DISK_FULL)
    bucket_bytes_max: int = 256 * 1024**2  # of each bucket, when it is made; at it puts are refused
    sync_is_always: bool = False  # the operator's word for `sync_interval: always`, where it cannot be read
    append_patience_s: float = 10.0  # of appends and reads that nobody takes; then they are refused (UNREACHABLE)
    attempt_s_max: float = 2.0  # for an answer to something published; then its outcome is unknown, and it is repeated
    read_s_max: float = 2.0  # for an answer to a read; then it is repeated
    close_s_max: float = 20.0  # for the last appends to be answered; then `close` raises StoreFailedError
    batch_min: int = 16  # appends that wait; fewer are published one by one, so many or more as an atomic batch
    batch_max: int = 512  # messages in a batch; the rest wait for the next. The server's own bound is 1,000
    batch_bytes_max: int = 8 * 1024 * 1024  # of a batch; the rest wait for the next
    tombstone_s: float = 86_400.0  # for which a forgotten stream keeps its place; then it has none
    compact_streams_at_once: int = 32  # read at the same time; the others wait
    presence: PresenceSettings = DEFAULT_PRESENCE  # who is where: heartbeats, and what follows from their absence


DEFAULT_ENGINE = EngineSettings()
