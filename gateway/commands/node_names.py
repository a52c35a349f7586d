"""Which node a person means by a name: the gateway knows, or the folder of one that does not run."""

import argparse
from typing import Any

from gateway.api.node_list import Filter, NodeList, shown
from gateway.commands.parsing import CommandError
from gateway.commands.reach import Gateway, ask, data_path
from gateway.commands.stopped import on_nodes
from gateway.identity.node_lives import NodeLives
from gateway.identity.tokens import OperatorScope
from gateway.main.data_folder import DataFolder
from schemas.labels import is_name, is_node_id

_NEITHER = "a node is named by its id (a lower-case ULID) or its name; `heliograph nodes` lists both"


def checked_node(text: str) -> str:
    """An id or a name, by its shape. Raises CommandError."""
    if not is_node_id(text) and not is_name(text):
        raise CommandError(_NEITHER)
    return text


def node_id_of(arguments: argparse.Namespace, text: str) -> str:
    """By an operator's look at the nodes of --data. Raises CommandError."""
    if is_node_id(checked_node(text)):
        return text

    async def look(_: NodeLives, nodes: NodeList) -> list[dict[str, Any]]:
        return [shown(node, 0) for node in nodes if Filter(name=text).takes(node, 0)]

    def here(folder: DataFolder) -> list[dict[str, Any]]:
        return on_nodes(folder, look) if folder.log_path.exists() else []

    found = ask(
        data_path(arguments),
        here,
        lambda operator: list(operator.each(f"/admin/nodes?name={text}", "nodes")),
        OperatorScope.FLEET_READ,
    )
    if len(found) > 1:
        raise CommandError("nodes of several tenants have that name: give the node's id; `heliograph nodes` lists it")
    if not found:
        raise CommandError("no node has that name; `heliograph nodes` lists them")
    return str(found[0]["node_id"])


def node_id_for_agent(gateway: Gateway, token: str, text: str) -> str:
    """By what the gateway tells an agent. Raises CommandError."""
    if is_node_id(checked_node(text)):
        return text
    asked = {"tool": "fleet_node", "arguments": {"node": text}}
    return str(gateway.ask("POST", "/mcp/tools/call", token, asked, wants="node_id")["node_id"])
