"""Every limit of a node's session, with what happens when it is reached. The numbers are those of the device wire."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeSettings:
    heartbeat_s: float = 25.0  # what `auth_ok` tells the node (§3)
    silence_s_max: float = 60.0  # without any inbound frame: 4408
    resume_s_max: float = 10.0  # from `auth_ok` to a complete `resume`: 4408
    manifests_refused_max: int = 3  # in a row: 4422
    frames_per_s_max: int = 200  # more, for `flood_s` seconds on end: 4429
    flood_s: int = 5  # seconds on end that make a flood
    resume_frames_max: int = 32  # of one `resume`; more: 4400
    resume_outcomes_max: int = 10_000  # in all its frames; more: 4400
    open_commands_max: int = 512  # of one node, sent and not settled; the next call is E_RATE_LIMITED
    inbox_items_max: int = 2048  # waiting for the log: a frame more is 4429, a call more E_RATE_LIMITED
    inbox_bytes_max: int = 8 * 1024 * 1024  # of frames waiting for the log: one more is 4429
    manifests_burst: int = 8  # judged at once; then one in `manifest_every_s`, sooner ones are refused: E_RATE_LIMITED
    manifest_every_s: float = (
        5.0  # between two manifests once the burst is used up; one that is accepted already is free
    )
    cadences_max: int = 16  # a node: the next `subscribe` is E_RATE_LIMITED (§6)
    cadence_ack_s_max: float = 5.0  # a cadence not acknowledged in time ends
    cadence_gap_min: float = 0.5  # of an interval between two relayed frames; a sooner one is dropped and counted
