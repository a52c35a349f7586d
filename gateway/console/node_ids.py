"""How a page names a node."""

from typing import Annotated, TypeAlias

import msgspec

from gateway.console.api import NoAnswer
from schemas.errors import Code

NodeId: TypeAlias = Annotated[str, msgspec.Meta(max_length=64)]
"""Whatever is in it: one that no node has is answered like any other that no node has."""

NO_SUCH_NODE = NoAnswer(Code.MANIFEST_NOT_FOUND, "No node has this id.", "Choose a node from the fleet's table.")
