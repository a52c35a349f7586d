"""Scopes of the two worlds, and which of them a member grants to a client. Pure.

A client asks for what a document or a challenge names, of both worlds; the passkey decides which world is meant.
"""

import re

from gateway.identity.tokens import Scope

ECHO_FULL = "echo.full"  # all of a space, and its administration
SPACE_SCOPES = (ECHO_FULL, "file_read", "file_write", "kv_read", "kv_write", "ws_read", "ws_write")
FLEET_SCOPES = (str(Scope.READ_ONLY), str(Scope.REVERSIBLE))
SCOPES_SUPPORTED = (*SPACE_SCOPES, *FLEET_SCOPES)  # in the order of the documents

SCOPE_TEXTS = {
    ECHO_FULL: "everything in one space, its members and settings too",
    "file_read": "read the files of one space",
    "file_write": "add and delete files of one space",
    "kv_read": "read the values of one space",
    "kv_write": "write and delete values of one space",
    "ws_read": "read the messages of one space",
    "ws_write": "send messages in one space",
    str(Scope.READ_ONLY): "read from the devices of your tenant",
    str(Scope.REVERSIBLE): "change what can be changed back on the devices of your tenant",
}
_SCOPE_CHARS_MAX = 1_024
_SCOPE = re.compile(r"[!#-\[\]-~]+(?: [!#-\[\]-~]+)*")  # RFC 6749 §3.3


def read_scopes(text: str) -> frozenset[str] | None:
    """Those that are known, of both worlds; others are passed over. None when none is, or it is no list of scopes."""
    if len(text) > _SCOPE_CHARS_MAX or not _SCOPE.fullmatch(text):
        return None
    return frozenset(text.split(" ")) & frozenset(SCOPES_SUPPORTED) or None


def effective(scopes: frozenset[str]) -> frozenset[str]:
    """With what they include."""
    return scopes | frozenset(SPACE_SCOPES) if ECHO_FULL in scopes else scopes


def in_order(scopes: frozenset[str]) -> list[str]:
    """As the documents have them."""
    return [scope for scope in SCOPES_SUPPORTED if scope in scopes]
