"""What an operator calls a node: a name and tags. Pure, and read by whoever takes them from a person.

A name is unique in its tenant (which is for the register to see to). Neither can come from a device, so both may stand
where a device's words may not. Their bounds are those of the published schema `node.labels@1.0.0`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from schemas.ecma import compile_ecma
from schemas.registry import REGISTRY

_SCHEMA = REGISTRY["node.labels@1.0.0"].document["properties"]
_NAME = compile_ecma(_SCHEMA["name"]["pattern"])
((_key_pattern, _value_rule),) = _SCHEMA["tags"]["patternProperties"].items()
_KEY, _VALUE = compile_ecma(_key_pattern), compile_ecma(_value_rule["pattern"])
_NODE_ID = compile_ecma(REGISTRY["manifest@1.0.0"].document["properties"]["node_id"]["pattern"])
TAGS_MAX: int = _SCHEMA["tags"]["maxProperties"]

NAME_RULE = (
    "A name has 1 to 63 of a-z, 0-9 and hyphen, no hyphen at either end, and is not shaped like a node id (a ULID)."
)
TAG_RULE = (
    f"A tag is key=value: a key of 1 to 63 of a-z, 0-9, _ and hyphen, beginning with a letter or digit; a value of 1 "
    f"to 63 of A-Z, a-z, 0-9, dot, _ and hyphen. A node has at most {TAGS_MAX}, one for each key."
)


@dataclass(frozen=True, slots=True)
class Labels:
    name: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def tag_texts(self) -> tuple[str, ...]:
        """As `key=value`, in the order of the keys."""
        return tuple(f"{key}={value}" for key, value in sorted(self.tags.items()))


UNLABELLED = Labels()


def is_node_id(text: str) -> bool:
    return bool(_NODE_ID.search(text))


def is_name(text: str) -> bool:
    return bool(_NAME.search(text)) and not is_node_id(text)


def is_tag(text: str) -> bool:
    key, equals, value = text.partition("=")
    return bool(equals and _KEY.search(key) and _VALUE.search(value))


def tags_of(texts: Iterable[str]) -> dict[str, str] | None:
    """`key=value` each; None when one is of another shape, a key comes twice, or there are too many."""
    tags: dict[str, str] = {}
    for text in texts:
        key, _, value = text.partition("=")
        if not is_tag(text) or key in tags or len(tags) == TAGS_MAX:
            return None
        tags[key] = value
    return tags
