"""What a policy says of another MCP server: how to reach it, whose it is, and which of its tools change nothing.

Reaching it is left to `gateway.calls.upstreams`. What may be a secret is in no `repr`: it cannot get into a log.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.governance.policy.patterns import Pattern

CONNECT_TIMEOUT_S = 10
CALL_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Value:
    """What stands in the file, or the variable of the gateway's environment that has it."""

    text: str = field(default="", repr=False)
    variable: str | None = None

    def read(self, environment: Mapping[str, str]) -> str | None:
        """None: there is no such variable."""
        return self.text if self.variable is None else environment.get(self.variable)


@dataclass(frozen=True, slots=True)
class UpstreamRules:
    """Reached by a command that is run here, or by a URL: one of the two is there."""

    name: str  # its tools are NAME.TOOL
    tenants: frozenset[str]
    command: tuple[str, ...] = field(default=(), repr=False)
    env: tuple[tuple[str, Value], ...] = ()
    cwd: str | None = None
    url: str | None = field(default=None, repr=False)
    headers: tuple[tuple[str, Value], ...] = ()
    read_only: tuple[Pattern, ...] = ()  # by the names that the tools have there
    connect_timeout_s: int = CONNECT_TIMEOUT_S
    call_timeout_s: int = CALL_TIMEOUT_S
    line: int | None = field(default=None, compare=False)

    def safety_class(self, tool: str) -> str:
        return "read_only" if any(pattern.matches(tool) for pattern in self.read_only) else "reversible"
