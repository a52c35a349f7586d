"""The port of tools that are no device's: listed behind those of devices, called through the same admission.

Their names begin with the upstream's, which no device's tool can. `gateway.calls.upstreams` implements it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from gateway.calls.admission import Admission
from gateway.calls.answers import Answered, Refused
from gateway.calls.audit import CallRecord
from gateway.calls.flat_names import FlatNames
from gateway.identity.tokens import Principal


class ListedTool(Protocol):
    """A tool as agents see it, wherever it is."""

    @property
    def name(self) -> str: ...

    @property
    def listed(self) -> Mapping[str, Any]: ...


class UpstreamTools(Protocol):
    def has(self, name: str) -> bool:
        """Whether the name is an upstream's, by its prefix."""

    def shows(self, principal: Principal, name: str) -> bool:
        """Whether it is of an upstream that this principal's tenant has: of others it learns nothing."""

    def known_name(self, name: str) -> str | None:
        """The name, if a tool has it: then it is no longer just the caller's text."""

    def tools(self, principal: Principal, wall_ms: int, after: str | None) -> Iterator[ListedTool]:
        """What scope and tenant give this principal, behind the tool named `after`. Use it before the next await."""

    def flat_names(self, tenant: str) -> FlatNames:
        """The names that every client takes, of all tools that this tenant's upstreams have now.

        The same object for as long as these are the same.
        """

    def meant_by(self, tenant: str, text: str) -> str | None:
        """The tool whose flat name this is. While an upstream is away, whatever begins with its name is its tool."""

    async def call(
        self, admission: Admission, record: CallRecord, name: str, arguments: Any, correlation_id: str
    ) -> Answered | Refused:
        """Run a tool whose name it `has`, within that upstream's own timeout."""
