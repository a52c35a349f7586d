"""The forms of errors that families of routes have, with the closed set of their words, as a document shows them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gateway.net.echo_refusal import ERROR_OF_STATUS
from gateway.net.operation import ErrorForm, Published
from schemas.echo.errors import EchoError, ErrorObject
from schemas.errors import CODE_OF_STATUS, Code, http_status


def by_status(pairs: Iterable[tuple[int, str]]) -> Mapping[int, Sequence[str]]:
    words: dict[int, set[str]] = {}
    for status, word in pairs:
        words.setdefault(status, set()).add(word)
    return {status: sorted(words[status]) for status in sorted(words)}


DEVICE = ErrorForm(
    "ErrorEnvelope",
    Published("error@1.2.0"),
    by_status(
        [
            *((http_status(code), code.value) for code in Code),
            *((status, code.value) for status, code in CODE_OF_STATUS.items()),
        ]
    ),
    always=(400, 408, 413, 431, 503),
    member="code",
)
ECHO = ErrorForm(
    "EchoError",
    ErrorObject,
    by_status((error.status, error.word) for error in EchoError),
    # What the door says, in echo's words, and too much from one address.
    always=sorted({ERROR_OF_STATUS[status].status for status in (400, 408, 413, 431, 503)} | {429}),
)
PAGE = replace(ECHO, name="EchoErrorOrPage", also=("text/html",))
