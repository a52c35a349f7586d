"""Every bound of who is where among several gateways."""

import msgspec


class PresenceSettings(msgspec.Struct, frozen=True):
    """Each with what happens when it is reached."""

    heartbeat_s: float = 2.0  # between two heartbeats of a process
    dead_s: float = 15.0  # without one; then the process's entry ends, and its nodes are away for all others
    lost_s_max: float = 10.0  # without a heartbeat that the engine took; then the process is not ready
    stale_s_max: float = 10.0  # until the watcher tells of a heartbeat; then the process is not ready, and watches anew
    clock_skew_ms_max: int = 500  # between this clock and the engine's; beyond it the process is not ready
    left_s: float = 3_600.0  # for which others are told how a node's session ended; then they only see that it is away
    puts_at_once: int = 32  # entries and manifests that are being put; the others wait
    announces_max: int = 8_192  # manifests that wait to be put; the next one is refused (OVERLOADED)
    janitor_s: float = 15.0  # for which a process is the janitor; then, if it has not said so again, another may be
    again_s: float = 0.5  # after an entry that nobody took; then it is put again
    feed_look_s: float = 10.0  # between looks at the streams that all follow; a hint that was lost costs so much
    record_tries_max: int = 8  # of a change that others came before; then it is refused (not written)


DEFAULT_PRESENCE = PresenceSettings()
