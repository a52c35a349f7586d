"""All checks, in the order in which they are tried: what later ones rely on comes first, what ends the node last."""

from collections.abc import Sequence

from actors.kit import (
    bad_frame_checks,
    cadence_checks,
    close_checks,
    command_checks,
    heartbeat_checks,
    opening_checks,
    renewal_checks,
    resume_checks,
)
from actors.kit.check import Check

CHECKS: tuple[Check, ...] = (
    *opening_checks.CHECKS,
    *heartbeat_checks.CHECKS,
    *command_checks.CHECKS,
    *cadence_checks.CHECKS,
    *bad_frame_checks.CHECKS,
    *resume_checks.CHECKS,
    *close_checks.RETURNS,
    *renewal_checks.CHECKS,
    *close_checks.ENDS,
)


def chosen(only: Sequence[str]) -> tuple[Check, ...]:
    """Those of the named sections ("7" is all of §7) and those that are named themselves; all, if nothing is named."""
    if not only:
        return CHECKS
    return tuple(check for check in CHECKS if any(_is_meant(check, name) for name in only))


def unknown(only: Sequence[str]) -> list[str]:
    """What names no check."""
    return [name for name in only if not any(_is_meant(check, name) for check in CHECKS)]


def _is_meant(check: Check, name: str) -> bool:
    return name in (check.name, check.section) or check.section.startswith(f"{name}.")
