"""Which clients there are to run, and with which command: the lock files say the versions."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.suite import find_node

HERE = Path(__file__).parent
_MODULES = HERE / "node_modules"
_PYTHON = HERE / ".venv" / "bin" / "python"
_HOW = "make conformance installs them"


class NotInstalledError(Exception):
    """A client, or what runs it, is not there; the text says what to do."""


@dataclass(frozen=True, slots=True)
class ClientCommand:
    name: str
    title: str  # for people: the SDK and its version
    command: list[str]
    needs: Path  # what is there once it is installed


def list_clients() -> list[ClientCommand]:
    """Every client, in the version that is locked, whether installed or not."""
    packages: dict[str, str] = json.loads((HERE / "package.json").read_text())["dependencies"]
    (python,) = re.findall(r"^mcp==(\S+)", (HERE / "requirements.lock").read_text(), re.MULTILINE)
    of_npm = [
        ClientCommand(
            name,
            f"TypeScript SDK {alias.rpartition('@')[2]}",
            [find_node() or "node", str(HERE / "client.mjs"), name],
            _MODULES / name,
        )
        for name, alias in packages.items()
    ]
    of_pypi = ClientCommand("python", f"Python SDK {python}", [str(_PYTHON), str(HERE / "python_client.py")], _PYTHON)
    return [*of_npm, of_pypi]


def find_clients() -> list[ClientCommand]:
    """Those of `list_clients`, once they are known to be there. Raises NotInstalledError."""
    if find_node() is None:
        raise NotInstalledError("no Node comes from npm for this machine: put one (22 or newer) on the PATH")
    clients = list_clients()
    for client in clients:
        if not client.needs.exists():
            raise NotInstalledError(f"{client.title} is not installed: {_HOW}")
    return clients
