"""`[engine]`: a gateway that is one of several on NATS JetStream. Without `url` it is alone, and none of this counts.

Nothing here needs a client of NATS: `engine_side` makes of it what the packages of the engine take.
"""

from dataclasses import dataclass

from actors.engine.settings import BusSettings, PresenceSettings, PurseSettings
from gateway.engine.settings import EngineSettings as Bounds


@dataclass(frozen=True, slots=True)
class EngineSettings:
    url: str | None = None  # nats://HOST:PORT or tls://HOST:PORT, several with commas between them
    credentials: str | None = None  # a file: NATS credentials, an NKey's seed, USER:PASSWORD or a token
    system_credentials: str | None = None  # the same for the system account, which says whether servers sync
    tls_ca: str | None = None  # PEM: who vouches for the servers; default: whom the system trusts
    prefix: str = "hg"  # of all subjects and objects: two fleets on one NATS have two
    replicas: int = 3  # of each object, when it is made; one that is there and has fewer is refused at start
    processes: int = 1  # gateways on this machine, which share its ports and data folder
    log_bytes_max: int = 10 * 1024**3  # of the log, when it is made; at it calls are refused, as on a full disk
    bucket_bytes_max: int = 256 * 1024**2  # of each bucket, when it is made; at it puts are refused
    heartbeat_s: float = 2.0  # between two heartbeats of a process
    dead_s: float = 15.0  # without one; then its nodes are away for all others
    lost_s_max: float = 10.0  # without reaching the engine; then calls are 503 and nodes are sent away (1012)
    stale_s_max: float = 10.0  # without being told what is in the engine; then the process is not ready
    leave_s: float = 20.0  # lost or stale, though NATS answers pings; then another server is tried
    append_patience_s: float = 10.0  # of appends and reads that nobody takes; then they are refused
    batch_min: int = 16  # appends that wait; fewer are published one by one, so many or more as one batch
    batch_max: int = 512  # messages in a batch; the rest wait for the next
    purse_timeout_ms: int = 500  # without a sign of life of a ledger's owner; then the ledger is taken by force
    feeds_max: int = 20_000  # cadences of other gateways' nodes, listened to here; the next is refused
    listeners_max: int = 100_000  # other gateways' attachments to nodes here, all together; the same
    clock_skew_ms_max: int = 500  # between this clock and the engine's; beyond it the process takes no nodes
    internal_listen: str | None = None  # HOST:PORT for gateways of other machines; the second process has the next port
    mqtt: str | None = (
        None  # HOST:PORT of NATS's MQTT listener: manifests are retained there, with TLS where `url` has it
    )
    mqtt_credentials: str | None = None  # a file: USER:PASSWORD or a token; default: what `credentials` names
    mqtt_telemetry: bool = False  # also the frames of what somebody listens to
    sync_is_always: bool = False  # your word for `sync_interval: always`, where it cannot be read

    @property
    def servers(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in (self.url or "").split(",") if part.strip())

    @property
    def presence(self) -> PresenceSettings:
        return PresenceSettings(
            heartbeat_s=self.heartbeat_s,
            dead_s=self.dead_s,
            lost_s_max=self.lost_s_max,
            stale_s_max=self.stale_s_max,
            leave_s=self.leave_s,
            clock_skew_ms_max=self.clock_skew_ms_max,
        )

    @property
    def bus(self) -> BusSettings:
        """A process that is dead for the directory is dead for those who listen to its nodes, too."""
        return BusSettings(
            ping_s=self.heartbeat_s,
            lease_s=self.dead_s,
            feeds_max=self.feeds_max,
            listeners_max=self.listeners_max,
        )

    @property
    def purse(self) -> PurseSettings:
        return PurseSettings(purse_timeout_ms=self.purse_timeout_ms)

    @property
    def bounds(self) -> Bounds:
        return Bounds(
            prefix=self.prefix,
            replicas=self.replicas,
            log_bytes_max=self.log_bytes_max,
            bucket_bytes_max=self.bucket_bytes_max,
            sync_is_always=self.sync_is_always,
            append_patience_s=self.append_patience_s,
            batch_min=self.batch_min,
            batch_max=self.batch_max,
            presence=self.presence,
        )
