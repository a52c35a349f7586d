"""Many nodes from a file: what is taken, and which line is told when something is wrong with it."""

import pytest

from gateway.commands.node_csv import NODES_MAX, read_nodes
from gateway.commands.parsing import CommandError

NODE_ID = "01hzx3k8q2v7n4t9r6w5y1c0ba"


def test_columns_may_stand_in_any_order_and_be_left_out() -> None:
    text = "tags,name\nsite=lab row=2, pump-1\n,pump-2\n"
    assert read_nodes(text, "acme") == {
        2: {"tenant": "acme", "name": "pump-1", "tags": {"site": "lab", "row": "2"}},
        3: {"tenant": "acme", "name": "pump-2"},
    }


def test_a_line_may_name_its_own_tenant_and_id() -> None:
    text = f"name,tenant,node_id\r\npump-1,umbra,{NODE_ID}\r\npump-1,,\r\n"
    assert read_nodes(text, "acme") == {
        2: {"tenant": "umbra", "name": "pump-1", "node_id": NODE_ID},
        3: {"tenant": "acme", "name": "pump-1"},
    }


def test_a_quoted_field_may_hold_a_comma_and_lines_are_counted_as_in_an_editor() -> None:
    assert list(read_nodes('name,tags\n"pump-1","a=1\nb=2"\npump-2,\n', "acme")) == [3, 4]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "line 1"),
        ("name\n", "no nodes"),
        ("name,colour\npump,red\n", "line 1"),
        ("name,name\na,b\n", "line 1"),
        ("name\npump-1\nPump-2\n", "line 3"),
        (f"name\n{NODE_ID}\n", "line 2"),
        ("name,tags\npump-1,site\n", "line 2"),
        ("name,tags\npump-1,site=a site=b\n", "line 2"),
        ("name,node_id\npump-1,X\n", "line 2"),
        ("name,tags\npump-1\n", "line 2"),
        ("name\npump-1,extra\n", "line 2"),
        ("name\npump-1\npump-2\npump-1\n", "line 4: this name is already that of line 2"),
        (f"node_id\n{NODE_ID}\n{NODE_ID}\n", "line 3: this node_id is already that of line 2"),
        ('name\n"pump-1\n', "no CSV"),
        ("name\n=cmd()\n", "line 2"),
        ("name,tenant\npump-1," + "x" * 65 + "\n", "line 2"),
        ("name\n" + "".join(f"n{n}\n" for n in range(NODES_MAX + 1)), f"line {NODES_MAX + 2}"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, told: str) -> None:
    with pytest.raises(CommandError, match=told):
        read_nodes(text, "acme")


def test_a_line_without_a_tenant_is_told_when_nobody_names_one() -> None:
    with pytest.raises(CommandError, match="line 2: it names no tenant"):
        read_nodes("name\npump-1\n", None)
