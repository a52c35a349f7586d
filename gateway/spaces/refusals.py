"""How echo spaces say what the door and the router refuse: in the closed object of their errors, with CORS where due.

`form_at` is what the feature declares (`Feature.refusal_form`). What a route of spaces refuses itself is said by
`answers.refuse`, in the same form.
"""

from functools import partial

from gateway.net.cors import CORS
from gateway.net.echo_refusal import ERROR_OF_STATUS, say
from gateway.net.refusal_form import RefusalForm, Refused

_PATHS = frozenset({"/", "/api", "/s", "/ws", "/spaces", "/service/description", "/healthz"})
_BELOW = ("/api/", "/assets/", "/s/", "/ws/", "/spaces/", "/service/")
_WITH_CORS = frozenset({"/api", "/service/description", "/healthz"})
_WITH_CORS_BELOW = "/api/"


def form_at(path: str, refused: dict[str, int] | None = None) -> RefusalForm | None:
    """`refused` counts what is said in this form, by its word."""
    if path not in _PATHS and not path.startswith(_BELOW):
        return None
    has_cors = path in _WITH_CORS or path.startswith(_WITH_CORS_BELOW)
    return partial(_say, tuple(CORS.items()) if has_cors else (), refused)


def form_of_sessions(refused: dict[str, int]) -> RefusalForm:
    """Of `/mcp`, for whoever has come with a credential of a space."""
    return partial(_say, (), refused)


def _say(
    more: tuple[tuple[bytes, bytes], ...], refused: dict[str, int] | None, status: int, correlation_id: str
) -> Refused:
    if refused is not None:
        refused[ERROR_OF_STATUS[status].word] += 1
    return say(status, correlation_id, more)
