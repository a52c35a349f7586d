"""Clean environments without an index: wheels are made of the packages that this environment has installed.

pip then resolves and installs what a distribution asks for from these alone, so a requirement that is not declared is
missing there as it would be on a stranger's machine. No test fetches anything.
"""

import subprocess
import sys
import venv
import zipfile
from importlib.metadata import Distribution, distributions
from pathlib import Path

INSTALL_S_MAX = 300


def fill_wheelhouse(folder: Path) -> None:
    """A wheel of every installed distribution but our own, which is to come from a build."""
    for distribution in distributions():
        said = (distribution.read_text("WHEEL") or "").splitlines()
        tags = [line.partition(":")[2].strip().split("-") for line in said if line.startswith("Tag:")]
        name = distribution.metadata["Name"].replace("-", "_")
        if tags and name != "heliograph":
            tag = "-".join(".".join(sorted(set(part))) for part in zip(*tags, strict=True))
            _pack(distribution, folder / f"{name}-{distribution.version}-{tag}.whl")


def _pack(distribution: Distribution, wheel: Path) -> None:
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in distribution.files or ():
            source = Path(str(distribution.locate_file(file)))
            # What pip has made itself (scripts beside the packages, bytecode, who installed it) it makes again.
            if ".." in file.parts or file.suffix == ".pyc" or file.name in ("INSTALLER", "REQUESTED"):
                continue
            if source.is_file():
                archive.write(source, file.as_posix())


class Clean:
    """An environment with nothing in it but what was installed."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True, with_pip=False)
        self.bin = folder / "bin"

    def install(self, what: str, wheelhouse: Path) -> None:
        self._pip("install", "--quiet", "--no-index", "--find-links", str(wheelhouse), "--no-compile", what)
        self._pip("check")

    def installed(self) -> set[str]:
        lines = self._pip("list", "--format", "freeze").splitlines()
        return {line.partition("==")[0].lower().replace("_", "-") for line in lines}

    def _pip(self, *arguments: str) -> str:
        """By the pip of the tests; --isolated: no settings or variables of this machine's user."""
        command = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check"]
        python = ["--python", str(self.bin / "python")]
        done = subprocess.run(
            [*command, *python, *arguments], capture_output=True, text=True, check=False, timeout=INSTALL_S_MAX
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
