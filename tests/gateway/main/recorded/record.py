"""Record a data folder with the code of the commit that is on PYTHONPATH: how the files beside this one were made. See
README.md.

It uses that code only from outside, by its commands and routes; what an earlier commit does not have yet is passed
over, and the file beside the folder says what is in it.
"""

import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WAIT_S = 60
CLI = "gateway.cli" if importlib.util.find_spec("gateway.cli") else "gateway.commands.cli"
BEARER = "bearer-of-the-project-api-0123456789"
AGENT = "agent_00000000-0000-4000-8000-000000000001"
NODE_ID = "01jd0000000000000000000001"
POLICY = f"[[agents]]\nagent = '{AGENT}'\ntools = '**'\nprice = 0.015\nbudget = 10\n"
SETTINGS = {
    "HELIOGRAPH_GOVERNANCE_POLICY": "policy.toml",
    "HELIOGRAPH_ECHO_ENABLED": "true",
    "HELIOGRAPH_PROJECTS_API_BEARER_TOKEN": BEARER,
}


def cli(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", CLI, *words], capture_output=True, text=True, timeout=WAIT_S, check=False
    )


def command(*words: str) -> str:
    done = cli(*words, "--data", "data")
    if done.returncode:
        raise SystemExit(f"{words}: {done.stderr}")
    return done.stdout.strip()


def tried(*words: str) -> str | None:
    """None: this commit has no such command."""
    done = cli(*words, "--data", "data")
    return done.stdout.strip() if done.returncode == 0 else None


def known_settings() -> dict[str, str]:
    """Those that this commit takes."""
    known = {}
    for name, value in SETTINGS.items():
        done = subprocess.run(
            [sys.executable, "-m", CLI, "serve", "--data", "/dev/null/x", "--http", "127.0.0.1:0"],
            env={**os.environ, name: value}, capture_output=True, text=True, timeout=WAIT_S, check=False,
        )  # fmt: skip
        if "there is no" not in done.stderr and "governance.policy" not in done.stderr:
            known[name] = value
    return known


@contextlib.contextmanager
def process(*words: str, **environment: str) -> Iterator["subprocess.Popen[str]"]:
    running = subprocess.Popen(
        [sys.executable, "-m", CLI, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip
    try:
        yield running
        running.send_signal(signal.SIGTERM)
        running.wait(WAIT_S)
    finally:
        running.kill()
        running.wait()
        if running.stdout is not None:
            running.stdout.close()


def ask(
    url: str, body: Any = None, bearer: str | None = None, method: str = "POST", kind: str = "application/json"
) -> Any:
    """None: it is refused."""
    headers = {"content-type": kind, "accept": "application/json"}
    if bearer is not None:
        headers["authorization"] = f"Bearer {bearer}"
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, data, headers, method=method), timeout=WAIT_S
        ) as answer:
            return json.load(answer)
    except urllib.error.HTTPError:
        return None


def until(look: Any) -> Any:
    end = time.monotonic() + WAIT_S
    while not (found := look()):
        if time.monotonic() > end:
            raise SystemExit("it does not come about")
        time.sleep(0.1)
    return found


def live(gateway: str, devices: str) -> dict[str, Any]:
    recorded: dict[str, Any] = {"agent": AGENT}
    recorded["node_id"] = node_id = NODE_ID
    command("node", "enroll", "--tenant", "acme", "--out", "node", "--node-id", node_id)
    token = command("token", "mint", "--tenant", "acme", "--sub", AGENT, "--life", "30d")
    with process("node", "run", "node", "--gateway", devices, "--mock", "7"):
        call = {"tool": f"sysecho.{node_id}.echo.invoke", "arguments": {"message": "hello"}}
        until(lambda: ask(f"{gateway}/mcp/tools/call", call, token))
        for _ in range(3):
            assert ask(f"{gateway}/mcp/tools/call", call, token)
    minted = json.loads(command("token", "mint", "--tenant", "acme", "--json"))
    command("token", "revoke", minted["jti"])
    recorded["revoked"] = minted["jti"]
    recorded["name"] = "pump-1" if tried("node", "rename", node_id, "pump-1") is not None else None
    invited = tried("member", "invite", "--tenant", "acme", "--scope", "tools:call:read_only", "--json")
    recorded["member_id"] = None if invited is None else json.loads(invited)["member_id"]
    space = ask(f"{gateway}/spaces", b"ttl_seconds=86400", kind="application/x-www-form-urlencoded")
    recorded["space_id"] = None if space is None else space["space_id"]
    if space is not None:
        assert ask(f"{gateway}/api/s/{space['token']}/kv/greeting", {"value": "hello"})
    project = ask(f"{gateway}/api/projects", {"name": "Board", "domain": "board"}, BEARER)
    recorded["project_id"] = None if project is None else project["project_id"]
    recorded["site"] = None
    if project is not None:
        place = f"{gateway}/api/projects/{project['project_id']}/static/index.html"
        if ask(place, b"<h1>hello</h1>", BEARER, "PUT", "text/html") is not None:
            recorded["site"] = "<h1>hello</h1>"
    return recorded


def main(name: str, out: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        Path("policy.toml").write_text(POLICY)
        listen = ["--http", "127.0.0.1:0", "--devices", "127.0.0.1:0"]
        with process("serve", "--data", "data", *listen, **known_settings()) as gateway:
            assert gateway.stdout is not None
            said = re.search(r"(http://\S+).*(ws://\S+)", gateway.stdout.readline())
            assert said is not None
            recorded = live(said[1], said[2])
            time.sleep(1)  # the kept audit follows
        recorded["files"] = sorted(str(path.relative_to("data")) for path in Path("data").rglob("*") if path.is_file())
        with tarfile.open(out / f"{name}.tar.gz", "w:gz") as tar:
            tar.add("data", arcname=".")
        (out / f"{name}.json").write_text(json.dumps(recorded, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).absolute())
