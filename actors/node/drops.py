"""What a node may send that is dropped and counted: a closed set, for each is the label of a metric."""

from enum import StrEnum


class Drop(StrEnum):
    TELEMETRY_INVALID = "telemetry_invalid"  # breaks its schema
    TELEMETRY_UNASKED = "telemetry_unasked"  # of no cadence, or of one that is over
    TELEMETRY_OF_ANOTHER_NODE = "telemetry_of_another_node"
    TELEMETRY_TOO_SOON = "telemetry_too_soon"  # less than half an interval after the last one relayed
    ACK_UNKNOWN = "ack_unknown"  # of no command that there is
    ACK_NOT_RECORDED = "ack_not_recorded"  # the log did not take it; the node keeps it
    LATE_ACK = "late_ack"  # of a command that is settled
    COMMAND_ILLEGAL = "command_illegal"  # an ack that the command's state does not allow
