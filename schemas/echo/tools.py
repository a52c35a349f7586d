"""Tools over MCP that a JSON file lists: names, texts for models, and the schemas of what goes in and comes out.

A file of such a list is the list itself, as clients see it. What the tools do is for whoever serves them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.contract import Contract


@dataclass(frozen=True)
class EchoTool:
    name: str
    listed: Mapping[str, Any]  # as MCP shows it
    input: Contract

    def takes(self, arguments: Any) -> bool:
        """Whether the arguments have the form. Never raises, whatever they are and whoever decoded them."""
        try:
            return bool(self.input.is_valid(arguments))
        except ValueError:  # a name that is no text: half of a surrogate pair
            return False

    @property
    def answer(self) -> Mapping[str, Any]:
        """The schema of what comes out."""
        schema: Mapping[str, Any] = self.listed["outputSchema"]
        return schema

    def body(self, *names_elsewhere: str) -> Mapping[str, Any]:
        """The schema of what goes in, where these arguments are not among it: over REST a path has them."""
        schema: Mapping[str, Any] = self.listed["inputSchema"]
        kept = {name: rule for name, rule in schema["properties"].items() if name not in names_elsewhere}
        required = [name for name in schema.get("required", ()) if name in kept]
        return {**schema, "properties": kept, "required": required}


def listed_in(file: str) -> list[Mapping[str, Any]]:
    """What a file beside this one lists."""
    listed: list[Mapping[str, Any]] = json.loads((Path(__file__).parent / file).read_text())
    return listed
