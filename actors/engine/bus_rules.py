"""What becomes of a question about a node that another process has. Pure.

The table for who asked (`UNANSWERED`) has a row for each way in which there is no answer. Only two of them say that
nothing was done; after the others the command may have been written, may run, and has to be paid for.
"""

from actors.bus.bus import Failed
from actors.bus.directory import HERE, NodeRecord
from actors.engine.messages import NoReply
from schemas.errors import Code

BUSY_RETRY_MS = 1000  # what a caller is told when the owner of a node is at a limit of its own

UNANSWERED: dict[NoReply, Code] = {
    NoReply.NOT_SENT: Code.NODE_OFFLINE,
    NoReply.NO_RESPONDERS: Code.NODE_OFFLINE,
    NoReply.TIMED_OUT: Code.DEADLINE_EXCEEDED,
    NoReply.LOST: Code.DEADLINE_EXCEEDED,
}


def unanswered(why: NoReply, msg_id: str | None) -> Failed:
    """What a caller is told; `msg_id` if the owner has named the command."""
    return Failed(UNANSWERED[why], msg_id, is_known=why.is_certain)


def is_elsewhere(record: NodeRecord | None) -> bool:
    """Whether to ask another process; if not, this one knows best."""
    return record is not None and record.live and record.owner != HERE


def is_worth_another_try(record: NodeRecord | None, tried_epoch: int) -> bool:
    """Whoever was asked did nothing: somebody else may have the node by now."""
    return record is not None and record.live and record.epoch > tried_epoch


def not_served(
    live_epoch: int | None, asked_epoch: int, deadline_at_ms: int, wall_ms: int, serving: int, serving_max: int
) -> Failed | bool:
    """Why the owner of a node does nothing for a question: a refusal, or True, the session is not here. False: it does.

    The deadline is judged by the clock of the process that has the socket.
    """
    if live_epoch != asked_epoch:
        return True
    if wall_ms >= deadline_at_ms:
        return Failed(Code.DEADLINE_EXCEEDED)
    if serving >= serving_max:
        return Failed(Code.RATE_LIMITED, retry_after_ms=BUSY_RETRY_MS)
    return False


def is_over(record: NodeRecord | None, owner: str, epoch: int) -> bool:
    """Whether a session that is listened to, in another process, has ended as far as the directory knows."""
    return record is None or not record.live or (record.owner, record.epoch) != (owner, epoch)
