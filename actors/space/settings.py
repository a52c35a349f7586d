"""Every limit of echo spaces, with what happens when it is reached."""

from dataclasses import dataclass

from actors.grants.grant_rules import GrantLimits
from actors.space.store import DEFAULT_LIMITS, SpaceStoreLimits
from actors.space.uid_rules import UidLimits


@dataclass(frozen=True, slots=True)
class SpaceSettings:
    # ---- spaces
    room_ttl_s: int = 604_800  # life of a space: then its token is 404, its sockets get 4410, its data is erased
    ttl_s_min: int = 60  # that may be asked for; less is `invalid_payload`
    ttl_s_max: int = 604_800  # that may be asked for; more is `invalid_payload`
    spaces_max: int = 10_000  # of the gateway, with those not erased yet; the next one is 503 `overloaded`
    open_spaces_max: int = 1_000  # whose index is in memory; then the one used least recently is read again when needed
    open_entries_max: int = 100_000  # values and files in those indexes; then those used least recently go
    end_moves_burst: int = 10  # moves of a space's end at once; the next one is 429 `rate_limited`
    end_moves_per_min: float = 1.0  # after those
    # ---- values
    value_bytes_max: int = 262_144  # as stored; more is 413 `payload_too_large`
    body_bytes_max: int = 294_912  # of a request; more is 413 `payload_too_large`
    keys_max: int = 1_024  # of a space; one more is 413 `space_full`
    kv_bytes_max: int = 16 * 1024 * 1024  # of all values of a space, as stored; more is 413 `space_full`
    list_keys_max: int = 1_000  # in one answer, and when nothing is said; who asks for more gets this many
    # ---- files
    file_bytes_max: int = 10_485_760  # more is 413 `payload_too_large`
    files_bytes_max: int = 104_857_600  # of all files of a space; more is 413 `space_full`
    files_max: int = 1_000  # of a space; one more is 413 `space_full`
    # ---- IAM
    iam_members_max: int = 100  # of a space; one more is 413 `space_full`
    iam_passkeys_max: int = 10  # of a member; one more is 413 `space_full`
    iam_invites_max: int = 100  # of a space, unused and not ended; one more is 413 `space_full`
    iam_invite_s: int = 86_400  # life of an invite for which none is asked, never beyond the room's; then it is 401
    iam_tokens_max: int = 100  # of the operator, in a project's room, standing; one more is 413 `space_full`
    iam_access_s: int = 3_600  # life of an access token, never beyond the room's; then it is 401, and refreshed
    iam_grants_max: int = 16  # of a member, standing; one more ends the one that was refreshed least recently
    iam_rotations_max: int = 1_000  # refreshes of one grant; then it is refreshed no more: its member signs in again
    iam_givings_burst: int = 600  # sign-ins, refreshes, invites, new members of a space at once; then 503 `overloaded`
    iam_givings_per_min: float = 30.0  # after those: all that a space with as many members and grants as may be needs
    iam_uids_max: int = 1_000  # names that members chose in the room of a space; another new one is closed with 4403
    iam_member_uids_max: int = 100  # of these, chosen by one member; another new one of theirs is closed with 4403
    iam_auth_s: float = 5.0  # for the `auth` frame of a connection without an access token; then 4408
    # ---- the disk, of all spaces
    # With what is on its way, and 512 B more for a value, 4 KiB for a file; writes beyond it are 503
    # `storage_not_ready`, reads go on.
    total_bytes_max: int = 10 * 1024**3
    disk_free_min: float = (
        0.10  # of the disk's bytes and inodes; with less, writes are 503 `storage_not_ready`; reads go on
    )
    # ---- the store, of all spaces
    queue_writes_max: int = DEFAULT_LIMITS.queue_writes_max  # that wait to be committed; the next is 503 `overloaded`
    queue_bytes_max: int = DEFAULT_LIMITS.queue_bytes_max  # of values among them; the next write is 503 `overloaded`
    batch_writes_max: int = DEFAULT_LIMITS.batch_writes_max  # in one transaction; the rest wait for the next
    wal_bytes_max: int = DEFAULT_LIMITS.wal_bytes_max  # of the write-ahead file, about; then it is folded in
    uploads_max: int = DEFAULT_LIMITS.uploads_max  # at a time; the next one is 503 `overloaded`
    upload_buffer_bytes_max: int = DEFAULT_LIMITS.upload_buffer_bytes_max  # held of an upload; then they are written
    file_threads_max: int = DEFAULT_LIMITS.file_threads_max  # that write and read files; the next piece waits for one
    erasing_threads_max: int = DEFAULT_LIMITS.erasing_threads_max  # keys made and erased at a time; the next waits
    erasing_batch_max: int = (
        DEFAULT_LIMITS.erasing_batch_max
    )  # keys with one sync of their folder; the next batch waits
    removing_threads_max: int = DEFAULT_LIMITS.removing_threads_max  # that remove files of the ended; the next waits
    cache_bytes_max: int = DEFAULT_LIMITS.cache_bytes_max  # of values in memory, each 512 B more; the oldest go
    # ---- rooms
    connections_max: int = 256  # of a room; the next one is closed with 4420 after the upgrade
    message_bytes_max: int = 65_536  # of a frame; a larger one closes the connection with 1009
    frames_per_s_max: int = 50  # of a connection, pings and fragments too; over it: `rate_limited`, dropped
    room_frames_per_s_max: int = 500  # messages of all connections of a room; over it: `rate_limited`, dropped
    burst_factor: int = 2  # of both rates, at once; then they hold
    pause_s: float = 0.25  # in which a connection over its rate is not read; less than `flood_gap_s`
    flood_s: float = 5.0  # for which a connection is over its rate on end; then it is closed with 4429
    flood_gap_s: float = 1.0  # without a dropped frame; then a connection is no longer over its rate
    bad_frames_max: int = 10  # malformed, in a row; the last one closes the connection with 4400
    silence_s_max: float = 60.0  # without anything received, pongs included; then 4408
    ping_s: float = 25.0  # between two pings to a connection
    unsent_frames_max: int = 256  # waiting for one reader; then it is closed with 4413
    unsent_bytes_max: int = 1024 * 1024  # waiting for one reader; then it is closed with 4413
    # For a reader to take what follows its upgrade, of which nothing counts toward the two above; then 4413.
    opening_s_max: float = 30.0
    # Waiting for the readers of all rooms; then the one for whom most waits is closed with 4413.
    unsent_total_bytes_max: int = 256 * 1024 * 1024
    # ---- coming back
    replay_messages_max: int = 256  # held in memory for those who come back; the oldest are forgotten
    replay_bytes_max: int = 1024 * 1024  # of their payloads; the oldest are forgotten
    replay_s_max: float = 120.0  # after which a message is forgotten
    # Of all rooms, with 512 bytes for each message; a room that needs more forgets its own oldest.
    replay_total_bytes_max: int = 256 * 1024 * 1024
    # ---- presence
    presence_connections_max: int = 100  # of a room; above it no `join`, `leave` or `state` is sent
    who_members_max: int = 100  # named in one `who`; the others are in its `total`
    whos_max: int = 10  # answered to a connection in `whos_s`; one more is `rate_limited`
    whos_s: float = 30.0  # in which `whos_max` are answered
    leave_s: float = 5.0  # after an abnormal close, before `leave` is sent; not at all if the `uid` is back by then
    state_bytes_max: int = 1_024  # of a presence state; more is `payload_too_large`
    states_max: int = 10  # changes of state of a connection in `states_s`; one more is `rate_limited`
    states_s: float = 30.0  # in which `states_max` changes of state are taken

    @property
    def uid_limits(self) -> UidLimits:
        return UidLimits(self.iam_uids_max, self.iam_member_uids_max)

    @property
    def grant_limits(self) -> GrantLimits:
        return GrantLimits(
            access_s=self.iam_access_s, member_grants_max=self.iam_grants_max, rotations_max=self.iam_rotations_max
        )

    @property
    def store_limits(self) -> SpaceStoreLimits:
        return SpaceStoreLimits(
            queue_writes_max=self.queue_writes_max,
            queue_bytes_max=self.queue_bytes_max,
            batch_writes_max=self.batch_writes_max,
            wal_bytes_max=self.wal_bytes_max,
            uploads_max=self.uploads_max,
            upload_buffer_bytes_max=self.upload_buffer_bytes_max,
            page_keys_max=self.list_keys_max,
            file_threads_max=self.file_threads_max,
            erasing_threads_max=self.erasing_threads_max,
            erasing_batch_max=self.erasing_batch_max,
            removing_threads_max=self.removing_threads_max,
            cache_bytes_max=self.cache_bytes_max,
        )
