"""What a person is told when a page or the form cannot be had: a title and a sentence for each error. Nothing sent."""

from schemas.echo.errors import EchoError

_OTHERWISE = "That did not work"
_TEXTS = {
    EchoError.SPACE_NOT_FOUND: (
        "There is no such space",
        "No space has this link. It was mistyped, or the space has ended and everything in it is erased.",
    ),
    EchoError.RATE_LIMITED: ("Too many requests", "Too much came from your network in a short time."),
    EchoError.UNAUTHORIZED: ("Wrong password", "Making a space here needs a password, and this was another one."),
    EchoError.CSRF_FAILED: (
        "The form is stale",
        "The form did not come from this site, or its page is too old. Open the form again, and allow its cookie.",
    ),
    EchoError.INVALID_PAYLOAD: (
        "The form was not understood",
        "A space lives from 60 seconds to as long as the form offers, and its protocol is one of the form's.",
    ),
    EchoError.OVERLOADED: ("No more spaces", "This gateway has as many spaces as it takes. Try again later."),
    EchoError.STORAGE_NOT_READY: ("Storage is full", "This gateway takes no new data at present. Try again later."),
}


def problem_text(error: EchoError) -> tuple[str, str]:
    """Title and sentence."""
    return _TEXTS.get(error, (_OTHERWISE, error.message))
