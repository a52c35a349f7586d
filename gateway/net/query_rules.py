"""The fields of a query, strictly: percent-encoded UTF-8, and not too many. Pure."""

import re
from collections.abc import Container
from urllib.parse import parse_qsl

QUERY_FIELDS_MAX = 20  # one more: 400
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class BadQuery(Exception):  # noqa: N818  # named for what happened
    """The query has too many fields, or is no text: 400."""


def read_fields(query: bytes, passing_over: Container[str] = ()) -> list[tuple[str, str]]:
    """Names and values in their order, without those that are empty. Raises BadQuery.

    `passing_over`: fields that are left out when their values are malformed.
    """
    parts = query.split(b"&")
    if len(parts) > QUERY_FIELDS_MAX:
        raise BadQuery
    fields: list[tuple[str, str]] = []
    for part in parts:
        try:
            fields += _field(part)
        except BadQuery:
            if part.partition(b"=")[0].decode("latin-1") not in passing_over:
                raise
    return fields


def _field(part: bytes) -> list[tuple[str, str]]:
    try:
        text = part.decode("ascii")
        if _BAD_ESCAPE.search(text):
            raise BadQuery
        return parse_qsl(text, errors="strict")
    except ValueError:  # not ASCII, or escaped bytes that are no UTF-8
        raise BadQuery from None
