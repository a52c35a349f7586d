"""What a person can do about an error of an echo service, and how long it says to wait. Pure."""

from collections.abc import Mapping
from typing import Any

WAIT_MS_MAX = 24 * 3600 * 1000  # of what a service says; a longer wait is taken as this

_HINTS = {
    "space_not_found": "Check the link, or make a space with `heliograph space create`.",
    "key_not_found": "`heliograph space kv ls` lists the keys.",
    "file_not_found": "`heliograph space files` lists the files.",
    "not_found": "See that the address is that of an echo service, with spaces switched on.",
    "method_not_allowed": "See that the address is that of an echo service.",
    "unauthorized": "See that the claim, the password or the bearer is that of this space or service.",
    "insufficient_scope": "Ask an owner of the space for access.",
    "invalid_key": "Choose another key.",
    "invalid_payload": "See the options with --help.",
    "invalid_encryption": "Leave --raw out, and the value is sealed here.",
    "encryption_required": "This instance does not say how it is encrypted: seal the value yourself, and give --raw.",
    "encryption_not_enabled": "Write the value without an envelope.",
    "version_conflict": "Read it with `heliograph space kv get --json`, then write with its version.",
    "payload_too_large": "The limits of an instance are at /service/description.",
    "space_full": "`heliograph space kv rm` removes values, `heliograph site rm` files of a site.",
    "project_not_found": "`heliograph project ls` lists the projects; another service has others.",
    "object_not_found": "`heliograph site ls` lists the files.",
    "invalid_path": "Choose another path.",
    "invalid_domain": "A domain is one label, such as shop, of a-z, 0-9 and dashes between them.",
    "domain_taken": "Choose another one with --domain.",
    "api_auth_not_configured": "Its operator sets API_BEARER_TOKEN.",
    "rate_limited": "Wait, then try again.",
    "storage_not_ready": "Try again later.",
    "overloaded": "Try again later.",
}


def wait_ms(said: Mapping[str, Any]) -> int | None:
    """Of an error's object, which may say anything; None: nothing that is a number."""
    said_ms = said.get("retry_after_ms")
    if not isinstance(said_ms, int) or isinstance(said_ms, bool):
        return None
    return max(0, min(said_ms, WAIT_MS_MAX))


def what_to_do(word: str, retry_after_ms: int | None = None) -> str:
    """Empty for a word that is not known."""
    if word == "rate_limited" and retry_after_ms is not None:
        return f"Try again in {max(1, -(-retry_after_ms // 1000))} s."
    return _HINTS.get(word, "")
