"""Where the node in JavaScript can run, it is one of the demo's."""

import json
from pathlib import Path

import psutil

from tests.node_js.installed import find_command
from tests.processes.test_demo import PATIENCE_S, Demo


def test_the_last_node_of_the_demo_is_in_javascript_and_ends_with_it(tmp_path: Path) -> None:
    command = find_command()
    assert command is not None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "node").symlink_to(command[0])
    demo = Demo(tmp_path, nodes=3, path=str(tmp_path / "bin"))
    try:
        (child,) = psutil.Process(demo.process.pid).children(recursive=True)
        assert "node-js" in demo.output.read_text()
        nodes = {node["node_id"]: node for node in json.loads(demo.command("nodes", "--json").stdout)}
        assert [node["agent"].split("/")[0] for node in nodes.values()].count("heliograph-node-js") == 1
        last = demo.ready["nodes"][-1]
        assert nodes[last]["agent"].startswith("heliograph-node-js/")
        called = {"tool": f"sysecho.{last}.echo.invoke", "arguments": {"message": "salut"}}
        status, result = demo.http("/mcp/tools/call", called)
        assert (status, result["message"], result["node_id"]) == (200, "salut", last)
        assert demo.stop() == 0
        psutil.wait_procs([child], timeout=PATIENCE_S)
        assert not child.is_running()
    finally:
        if demo.process.poll() is None:
            demo.process.kill()
            demo.process.wait(PATIENCE_S)
