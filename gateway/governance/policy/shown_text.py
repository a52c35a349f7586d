"""A policy's text for operators who may see the fleet, which is fewer rights than to read the file. Pure.

What an upstream is reached with may be a secret: the values of its headers and variables, its address, and all words of
its command but the first. Each is shown as HIDDEN, and so are comments in and just before such a table. Lines keep
their numbers, which explanations name.
"""

import tomllib
from collections.abc import Iterator
from typing import Any

from gateway.governance.policy.toml_lines import Place, Span, spans_of

HIDDEN = '"(hidden)"'
HIDDEN_COMMENT = "# (hidden)"
_UPSTREAMS = "upstreams"
_SECRET_CHARS_MIN = 8  # of a hidden value that must not stand anywhere else in the text; shorter ones do by chance


def shown_text(text: str) -> str | None:
    """For a text that is a policy. None: what is hidden stands where it cannot be told from the rest."""
    text = text.replace("\r\n", "\n")
    document = tomllib.loads(text)
    spans = spans_of(text)
    hidden = {span: HIDDEN for place, span in spans.values.items() if _is_secret(place, text[span[0]])}
    hidden |= {span: HIDDEN_COMMENT for table, span in spans.comments if table[:1] == (_UPSTREAMS,)}
    shown = _without(text, hidden)
    values = (value for value in _secrets(document) if len(value) >= _SECRET_CHARS_MIN)
    return None if any(value in shown for value in values) else shown


def _is_secret(place: Place, opening: str) -> bool:
    match place:
        case (str(table), _, "url") if table == _UPSTREAMS:
            return True
        case (str(table), _, "env" | "headers", _) if table == _UPSTREAMS:
            return opening != "{"  # else it names a variable
        case (str(table), _, "command", int(word)) if table == _UPSTREAMS:
            return word > 0
    return False


def _secrets(document: dict[str, Any]) -> Iterator[str]:
    """The same values, by what they mean and not by where they stand."""
    for upstream in document.get(_UPSTREAMS, ()):
        yield from upstream.get("command", ())[1:]
        yield from (upstream["url"],) if "url" in upstream else ()
        for values in (upstream.get("env", {}), upstream.get("headers", {})):
            yield from (value for value in values.values() if isinstance(value, str))


def _without(text: str, hidden: dict[Span, str]) -> str:
    parts, at = [], 0
    for (start, end), instead in sorted(hidden.items()):
        parts += [text[at:start], instead, "\n" * text.count("\n", start, end)]
        at = end
    return "".join((*parts, text[at:]))
