"""Every limit of telemetry streams, with what happens when it is reached. The first three are those of RFC-0009."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamSettings:
    frames_pending_max: int = 3  # offered and not acknowledged; one more: 4413
    ping_s: float = 25.0  # from the opening on, whatever else is sent
    idle_s_max: float = 90.0  # with bytes outstanding and none acknowledged: 4408
    look_s: float = 5.0  # how long a look at what is acknowledged is good for; the next frame is preceded by another
    close_s_max: float = 5.0  # for the close event to be acknowledged; then the kernel alone goes on with it
    input_bytes_max: int = 64 * 1024  # sent by the client after its request; more: 1000
    streams_max: int = 20_000  # of the gateway; the next one is E_RATE_LIMITED
    streams_per_agent_max: int = 1_000  # however many connections they come on; the next one is E_RATE_LIMITED
    streams_per_tenant_max: int = 0  # 0: no quota; past one, a new stream opens and is closed with 4429
    inline_streams_max: int = 8  # of a cadence, written to where its frame was read; more: by the fan-out's task
    slice_streams_max: int = 512  # written to between two checkpoints of the fan-out; the others have their turn then
