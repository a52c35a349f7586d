"""The note in the data folder that says where its gateway can be reached, for the command line (`running.json`)."""

import json
import os
from pathlib import Path
from typing import Any

from gateway.main.data_folder import RUNNING_FILE
from gateway.net.tls import leaf, leaf_of


class RunningNote:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: dict[str, Any] = {}

    def write(self, http: str, devices: str, admin: str | None, policy: Path | None, certificate: str | None) -> None:
        """`certificate` is the path of the one that agents see."""
        self._written = {
            "http": http,
            "devices": devices,
            "admin": admin,
            "http_certificate": None if certificate is None else leaf(certificate),
            "policy": None if policy is None else str(policy.absolute()),
        }
        self._put()

    def use_certificate(self, text: str) -> None:
        """Agents see another one from now on, the first in this text. Raises OSError."""
        self._written["http_certificate"] = leaf_of(text)
        self._put()

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)

    def _put(self) -> None:
        whole = self._path.with_name(
            f"{self._path.name}.{os.getpid()}.new"
        )  # others that share the folder write it too
        whole.write_text(json.dumps(self._written) + "\n")
        whole.replace(self._path)  # a command that reads it now finds all or nothing


def noted(folder: Path) -> dict[str, Any]:
    """What the gateway on this folder has noted; nothing, if that cannot be read."""
    try:
        found = json.loads((folder / RUNNING_FILE).read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
