"""Many nodes from a CSV file: one line each, checked whole before anybody is asked. Pure.

The first line names the columns: `name`, `tags` (`key=value`, with spaces between), `node_id` and `tenant`; any of
them, in any order. What is wrong is told with its line, and nothing of the file is taken then.
"""

import csv
import io
from typing import Any

from gateway.commands.parsing import CommandError
from gateway.commands.reach import checked_tenant
from schemas.labels import NAME_RULE, TAG_RULE, is_name, is_node_id, tags_of

NODES_MAX = 1000  # in one file; split a longer one
COLUMNS = ("name", "tags", "node_id", "tenant")


def read_nodes(text: str, tenant: str | None) -> dict[int, dict[str, Any]]:
    """By line: what to enroll, as `/admin/enroll_many` takes it. `tenant` is that of lines that name none. Raises
    CommandError."""
    reader = csv.DictReader(io.StringIO(text), strict=True, skipinitialspace=True)
    nodes: dict[int, dict[str, Any]] = {}
    seen: dict[tuple[str, ...], int] = {}
    try:
        columns = reader.fieldnames or []
        if not columns or set(columns) - set(COLUMNS) or len(set(columns)) < len(columns):
            raise CommandError(f"line 1 names the columns, each once: some of {', '.join(COLUMNS)}")
        for row in reader:
            line = reader.line_num
            if len(nodes) == NODES_MAX:
                raise CommandError(f"line {line}: a file has at most {NODES_MAX} nodes: split it")
            node = _node(row, tenant, line)
            keys: list[tuple[str, ...]] = [("node_id", node["node_id"])] if "node_id" in node else []
            keys += [("name", node["name"], node["tenant"])] if "name" in node else []
            for key in keys:
                if key in seen:
                    raise CommandError(f"line {line}: this {key[0]} is already that of line {seen[key]}")
                seen[key] = line
            nodes[line] = node
    except csv.Error as error:
        raise CommandError(f"line {max(reader.line_num, 1)}: this is no CSV ({error})") from None
    if not nodes:
        raise CommandError("the file has no nodes: write one a line, below the names of the columns")
    return nodes


def _node(row: dict[str | Any, str | Any], tenant: str | None, line: int) -> dict[str, Any]:
    if None in row or None in row.values():
        raise CommandError(f"line {line}: it has more or fewer fields than the first line has columns")
    fields = {column: value.strip() for column, value in row.items()}
    owner = fields.get("tenant") or tenant
    if not owner:
        raise CommandError(f"line {line}: it names no tenant: add a column for it, or give --tenant")
    try:
        node: dict[str, Any] = {"tenant": checked_tenant(owner)}
    except CommandError as error:
        raise CommandError(f"line {line}: {error}") from None
    if name := fields.get("name"):
        if not is_name(name):
            raise CommandError(f"line {line}: this is no name. {NAME_RULE}")
        node["name"] = name
    if node_id := fields.get("node_id"):
        if not is_node_id(node_id):
            raise CommandError(f"line {line}: a node_id is a lower-case ULID; leave it empty for a new one")
        node["node_id"] = node_id
    if texts := fields.get("tags", "").split():
        tags = tags_of(texts)
        if tags is None:
            raise CommandError(f"line {line}: {TAG_RULE}")
        node["tags"] = tags
    return node
