"""One line in the log for each thing that an operator does to the gateway."""

from collections.abc import Mapping
from typing import Any

import structlog

from gateway.calls.audit import Decision
from gateway.identity.tokens import Principal
from schemas.errors import Code

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class ActionLog:
    """Implements `gateway.api.admin.ActionAudit`."""

    def action(
        self,
        principal: Principal,
        action: str,
        decision: Decision,
        *,
        target: Mapping[str, Any] | None = None,
        code: Code | None = None,
        reason: str | None = None,
        took_ms: float,
    ) -> None:
        log.info(
            "operator_action",
            action=action,
            sub=principal.sub,
            tenant=principal.tenant,
            token_id=principal.jti,
            decision=str(decision),
            target=target,
            code=None if code is None else str(code),
            reason=reason,
            took_ms=took_ms,
        )
