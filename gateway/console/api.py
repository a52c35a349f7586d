"""What the console's pages may ask for: the table of calls, `POST /console/api/NAME`.

A call names the one scope that it takes, the shape of its body and who answers. Whoever answers gets a body that fits
and the operator of the session, whose `scopes` are all that it has; it answers with a value. Cookies, origins, limits
and the form of errors are `dispatch.py`'s; nothing here waits or knows HTTP but for the type of a stream.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gateway.identity.tokens import OperatorScope, Principal
from schemas.errors import Code


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why there is none, as an error envelope says it."""

    code: Code
    message: str | None = None
    suggested_fix: str | None = None
    reason: str = "not_done"  # of an action, for the audit


Write: TypeAlias = Callable[[bytes], Awaitable[None]]
"""Sends some of a stream. It waits until the client takes it; one that does not in time has its stream cancelled."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer that comes bit by bit: live events, an export.

    It is cancelled when the client hangs up or stops reading, when the session ends, and when the gateway stops. One
    that returns has ended its response. It counts as one of `console.live_max` and of the session's share.
    """

    content_type: bytes
    run: Callable[[Write], Awaitable[None]]
    headers: Mapping[bytes, bytes] = field(default_factory=dict)
    is_file: bool = False
    """Cut short, its response is broken off, so that nobody takes a part of it for all. A feed ends in order."""


Answer: TypeAlias = Mapping[str, Any] | Streamed | NoAnswer
AnswerCall: TypeAlias = Callable[[Any, Principal], Answer | Awaitable[Answer]]
"""What was asked, decoded, and by whom. A client that hangs up cancels it."""


@dataclass(frozen=True, slots=True)
class ConsoleCall:
    """An entry of the table."""

    name: str  # as in its path, such as `policy/explain`
    scope: OperatorScope
    shape: type[Any]  # a closed struct: `msgspec.Struct, frozen=True, forbid_unknown_fields=True`
    answer: AnswerCall
    action: str | None = None
    """As the audit calls it when it is refused; None: it is a read. Whoever does it leaves the line of what is done."""
