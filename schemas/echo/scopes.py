"""The scopes of a space with IAM: a closed set. Writing includes no reading; `echo.full` is all, and administration."""

from collections.abc import Set

KV_READ = "kv_read"
KV_WRITE = "kv_write"
FILE_READ = "file_read"
FILE_WRITE = "file_write"
WS_READ = "ws_read"
WS_WRITE = "ws_write"
FULL = "echo.full"

SCOPES = frozenset({KV_READ, KV_WRITE, FILE_READ, FILE_WRITE, WS_READ, WS_WRITE, FULL})


def allows(scopes: Set[str], needed: str) -> bool:
    return needed in scopes or FULL in scopes


def covers(scopes: Set[str], asked: Set[str]) -> bool:
    """Whether who has these may give all of those away."""
    return asked <= SCOPES and (FULL in scopes or asked <= scopes)
