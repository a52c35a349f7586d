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


def listed_in(file: str) -> list[Mapping[str, Any]]:
    """What a file beside this one lists."""
    listed: list[Mapping[str, Any]] = json.loads((Path(__file__).parent / file).read_text())
    return listed
