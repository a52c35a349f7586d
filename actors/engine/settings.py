"""Every bound of who is where among several gateways, of what they do for each other, and of their one purse."""

import msgspec


class PresenceSettings(msgspec.Struct, frozen=True):
    """Each with what happens when it is reached."""

    heartbeat_s: float = 2.0  # between two heartbeats of a process
    dead_s: float = 15.0  # without one; then the process's entry ends, and its nodes are away for all others
    lost_s_max: float = 10.0  # without a heartbeat that the engine took; then the process is not ready
    stale_s_max: float = 10.0  # until the watcher tells of a heartbeat; then the process is not ready, and watches anew
    leave_s: float = 20.0  # not ready, though its connection is up; then the process tries another server
    clock_skew_ms_max: int = 500  # between this clock and the engine's; beyond it the process is not ready
    left_s: float = 3_600.0  # for which others are told how a node's session ended; then they only see that it is away
    puts_at_once: int = 32  # entries and manifests that are being put; the others wait
    announces_max: int = 8_192  # manifests that wait to be put; the next one is refused (OVERLOADED)
    janitor_s: float = 15.0  # for which a process is the janitor; then, if it has not said so again, another may be
    again_s: float = 0.5  # after an entry that nobody took; then it is put again
    feed_look_s: float = 10.0  # between looks at the streams that all follow; a hint that was lost costs so much
    record_tries_max: int = 8  # of a change that others came before; then it is refused (not written)


class BusSettings(msgspec.Struct, frozen=True):
    """As above. `ping_s` and `lease_s` are best those of heartbeats and of their absence."""

    calls_max: int = 4_096  # for other processes, at once; the next one is refused (E_RATE_LIMITED)
    accepted_s: float = 0.1  # a call has taken; then its asker is told the command's id before the answer
    attach_s_max: float = 5.0  # until the owner of a node says whether it may be listened to; then E_DEADLINE_EXCEEDED
    feeds_max: int = (
        20_000  # cadences of other processes' nodes, listened to here; the next is refused (E_RATE_LIMITED)
    )
    listeners_max: int = 100_000  # other processes' attachments here, all together; the next is refused, as above
    ping_s: float = 2.0  # between two pings of a process whose nodes are listened to
    misses_max: int = 2  # pings in a row that nobody serves; then what was listened to there has ended
    lease_s: float = 15.0  # without a ping; then a process that listened here is taken to have gone


class PurseSettings(msgspec.Struct, frozen=True):
    """Each with what happens when it is reached."""

    purse_timeout_ms: int = 500  # without a sign of life of a ledger's owner; then the ledger is taken by force
    again_ms: int = 100  # after a question that nobody could be asked; then it is asked again
    moved_ms: int = 50  # for another answer, after a process said that it has lost the ledger; then it is asked again
    asks_max: int = 4_096  # of other processes that wait here; the next one is refused
    owed_max: int = 65_536  # charges and releases that wait for an owner; the next is dropped, and charged when overdue
    owed_ms: int = 60_000  # in which whose ledger it is has to be found; then the same
    settle_events_max: int = 256  # in one question; the others wait for the next


DEFAULT_PRESENCE = PresenceSettings()
DEFAULT_BUS = BusSettings()
DEFAULT_PURSE = PurseSettings()
