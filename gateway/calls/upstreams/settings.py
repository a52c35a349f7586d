"""Every limit of upstreams, with what happens when it is reached; what differs between them is in the policy."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    list_s_max: float = 10.0  # for all pages of a list; past it the upstream counts as hung and is connected anew
    check_s: float = 30.0  # between looks at an upstream that says nothing; how long a dead one may go unnoticed
    relist_s_min: float = 1.0  # between two lists; however often an upstream says that its tools have changed
    retry_s_min: float = 1.0  # up to so long before the first new try; doubled with each that fails
    retry_s_max: float = 60.0  # and never longer
    tools_max: int = 1000  # of one upstream; those beyond are not listed
    schema_bytes_max: int = 32_768  # of a tool's input or output schema; a tool with a larger one is not listed
    calls_max: int = 64  # under way at one upstream; the next one is E_RATE_LIMITED
    message_bytes_max: int = 4 * 1024 * 1024  # of one message; a longer one ends the connection, which is made anew
    result_bytes_max: int = 1024 * 1024  # of a result, as JSON; a longer one is charged and not passed on
    stop_s_max: float = 0.3  # for a child to end by itself; then it is killed
