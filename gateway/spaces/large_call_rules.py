"""Which calls are large: of requests, which are worth decoding, and of answers, which need a place of their own. Pure.

Worth decoding are calls with one long text among their arguments, a file or a value.
A decoder makes objects of whatever it finds, many times the size of their JSON: one request of many small things would
hold up everybody. A long text costs a copy.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.net.exchange import BODY_BYTES_MAX


class _Arguments(msgspec.Struct):
    data_base64: msgspec.Raw = msgspec.Raw()
    value: msgspec.Raw = msgspec.Raw()


class _Params(msgspec.Struct):
    arguments: _Arguments


class _Call(msgspec.Struct):
    params: _Params


_call = msgspec.json.Decoder(_Call)  # passes over all else, and makes nothing of it


def is_mostly_text(body: bytes) -> bool:
    """Whether the rest of it is no larger than any request may be."""
    try:
        arguments = _call.decode(body).params.arguments
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    texts = (bytes(raw) for raw in (arguments.data_base64, arguments.value))
    return len(body) - sum(len(text) for text in texts if text.startswith(b'"')) <= BODY_BYTES_MAX


def is_large_answer(document: Mapping[str, Any]) -> bool:
    """Whether a result is larger than any request may be: it has its document twice, once as JSON in a text."""
    if any(isinstance(value, str) and 2 * len(value) > BODY_BYTES_MAX for value in document.values()):
        return True  # to encode it would only cost
    encoded = msgspec.json.encode(document)
    return len(encoded) + len(msgspec.json.encode(encoded.decode())) > BODY_BYTES_MAX
