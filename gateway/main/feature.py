"""What a package of the gateway brings to the whole. The composition root lists features and joins them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from actors.supervision.supervisor import Supervisor
from gateway.main.session_kind import SessionKind
from gateway.net.operation import Operations
from gateway.net.refusal_form import FormOf, device_form_only
from gateway.net.router import Route


def _nothing(_: object) -> None:
    pass


def _do_nothing() -> None:
    pass


def _never(_: object) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Feature:
    routes: Mapping[str, Route] = field(default_factory=dict)
    operations: Operations = field(default_factory=dict)
    """What each route is for: the OpenAPI document is made of this (`gateway/net/operation.py`)."""
    start: Callable[[Supervisor], None] = _nothing
    """Start what runs for as long as the gateway does."""
    revoke: Callable[[str], None] = _nothing
    """A token was revoked, or its grant has ended or lapsed: end what belongs to this id."""
    end_all: Callable[[], None] = _do_nothing
    """Nobody knows any more which tokens count: end whatever any token opened and is not answered at once."""
    takes_upgrade: Callable[[str], bool] = _never
    """By path: whether a route of this feature takes WebSocket upgrades, with the door's UPGRADE."""
    refusal_form: FormOf = device_form_only
    """By path: how this feature says what is refused where no route answers, or before one does."""
    counts_bodies: Callable[[str], bool] = _never
    """By path: whether a route of this feature counts bodies itself as they come; then the door need not."""
    session_kinds: Sequence[SessionKind] = ()
    """Credentials that `/mcp` takes for this feature, and the tools that they open."""
