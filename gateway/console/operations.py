"""What the console's routes are for, as the OpenAPI document has it. They are for its own pages: answers may change."""

from functools import partial
from typing import Any, NotRequired, TypedDict

from gateway.net.error_forms import DEVICE, by_status
from gateway.net.operation import JSON, Answer, Credential, ErrorForm, Operation, Operations
from schemas.echo.errors import EchoError
from schemas.errors import Code

SESSION_CREDENTIAL = Credential("session")


class ConsoleErrorEnvelope(TypedDict):
    code: str
    message: str
    suggested_fix: str
    correlation_id: NotRequired[str]
    retry_after_ms: NotRequired[int]
    details: NotRequired[dict[str, Any]]


_WORDS = [
    *((status, word) for status, words in DEVICE.words.items() for word in words),
    *((error.status, error.word) for error in (EchoError.CSRF_FAILED, EchoError.UNAUTHORIZED)),
    (415, Code.MANIFEST_INVALID.value),
    (503, Code.INTERNAL.value),
]
_ERRORS = ErrorForm("ConsoleError", ConsoleErrorEnvelope, by_status(_WORDS), DEVICE.always, DEVICE.member)
_console = partial(Operation, tag="Console", form=_ERRORS)


def call_operation(shape: type[Any], credentials: tuple[Credential, ...] = ()) -> Operation:
    return _console(
        summary="For the console's own pages.",
        credentials=credentials,
        body={JSON: shape},
        answers={
            200: Answer("What was asked for; or bit by bit.", {}, also={"text/event-stream": None, "*/*": None}),
            201: Answer("Made.", {}),
            204: Answer("Done.", media_type=None),
        },
        refuses=(401, 403, 404, 415, 429, 500),
    )


def shell_operations(path: str) -> Operations:
    page = _console(
        summary="A page of the console. It has no data, so nobody is asked who they are.",
        names={"page": {"type": "string"}},
        answers={
            200: Answer("The page.", None, "text/html"),
            302: Answer("To the name of this machine.", None, "text/plain"),
        },
        refuses=(429,),
    )
    return {f"GET {path}": page, f"GET {path}/{{page*}}": page}
