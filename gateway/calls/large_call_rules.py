"""Which calls are large: of requests, which are worth decoding, and of answers, which need a place of their own. Pure.

Worth decoding are calls with one long text among their arguments, such as a file or a value.
A decoder makes objects of whatever it finds, many times the size of their JSON: one request of many small things would
hold up everybody. A long text costs a copy.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.net.exchange import BODY_BYTES_MAX


class LongTexts:
    """Which arguments of a call may be long texts; the rest of it may not be long."""

    def __init__(self, *names: str) -> None:
        self._names = names
        arguments = msgspec.defstruct("_Arguments", [(name, msgspec.Raw, msgspec.Raw()) for name in names])
        params = msgspec.defstruct("_Params", [("arguments", arguments)])
        # It passes over all else, and makes nothing of it.
        self._call = msgspec.json.Decoder(msgspec.defstruct("_Call", [("params", params)]))

    def are_most_of(self, body: bytes) -> bool:
        """Whether the rest of it is no larger than any request may be."""
        try:
            arguments = self._call.decode(body).params.arguments  # type: ignore[attr-defined]  # made just now
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        texts = (bytes(getattr(arguments, name)) for name in self._names)
        return len(body) - sum(len(text) for text in texts if text.startswith(b'"')) <= BODY_BYTES_MAX


def is_large_answer(document: Mapping[str, Any]) -> bool:
    """Whether a result is larger than any request may be: it has its document twice, once as JSON in a text."""
    if any(isinstance(value, str) and 2 * len(value) > BODY_BYTES_MAX for value in document.values()):
        return True  # to encode it would only cost
    encoded = msgspec.json.encode(document)
    return len(encoded) + len(msgspec.json.encode(encoded.decode())) > BODY_BYTES_MAX
