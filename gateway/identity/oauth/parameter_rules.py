"""Parameters of OAuth, in a query or a form: `application/x-www-form-urlencoded`, read strictly. Pure.

RFC 6749 §3.1: one without a value counts as omitted, one that is not known is passed over, none may be repeated.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

FIELDS_MAX = 50  # one more, and nothing of it is read
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class Parameters:
    values: Mapping[str, str]
    """Those that are given once, and not empty."""
    repeated: frozenset[str]

    def get(self, name: str) -> str | None:
        return self.values.get(name)


def read_parameters(encoded: bytes) -> Parameters | None:
    """None when it is no such text: not ASCII, a broken escape, not UTF-8 or too much of it."""
    try:
        text = encoded.decode("ascii")
        if _BAD_ESCAPE.search(text):
            return None
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError:
        return None
    repeated = frozenset(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
    return Parameters({name: value for name, value in pairs if value and name not in repeated}, repeated)
