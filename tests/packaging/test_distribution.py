"""What is published, built once and installed as a stranger would: a gateway's install, and a device's."""

import json
import os
import re
import subprocess
import sys
import tarfile
import time
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from gateway.commands.cli import COMMANDS
from tests.packaging.wheelhouse import Clean, fill_wheelhouse

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION: str = PROJECT["version"]
PACKAGES = ("actors", "gateway", "schemas")
NODE = "bare-1"
# Commands that work without the gateway's packages, or do with the address of a gateway elsewhere.
ON_A_DEVICE = {"node", "project", "schema", "site"}
PATIENCE_S = 120


def _name(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found
    return found[0].lower()


OF_NODE = {_name(one) for one in PROJECT["dependencies"]}
OF_GATEWAY = {_name(one) for one in PROJECT["optional-dependencies"]["gateway"]}


def _build(source: Path, target: Path, kind: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(target), "--target", kind]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    (built,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


@pytest.fixture(scope="module")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheelhouse")
    _build(ROOT, folder, "wheel")
    fill_wheelhouse(folder)
    return folder


@pytest.fixture(scope="module")
def wheel(wheelhouse: Path) -> Path:
    return wheelhouse / f"heliograph-{VERSION}-py3-none-any.whl"


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build(ROOT, tmp_path_factory.mktemp("sdist"), "sdist")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, wheelhouse: Path) -> Clean:
    clean = Clean(tmp_path_factory.mktemp("bare"))
    clean.install("heliograph", wheelhouse)
    return clean


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory, wheelhouse: Path) -> Clean:
    clean = Clean(tmp_path_factory.mktemp("full"))
    clean.install("heliograph[gateway]", wheelhouse)
    return clean


def _run(clean: Clean, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [clean.bin / "heliograph", *arguments],
        cwd=folder,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def _environment() -> dict[str, str]:
    """Nothing of ours is found but what is installed."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HELIOGRAPH_"))}


# ---- what is in them -----------------------------------------------------------------------------------------------


def _contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _metadata(wheel: Path) -> Message:
    return message_from_bytes(_contents(wheel)[f"heliograph-{VERSION}.dist-info/METADATA"])


def test_wheel_has_every_file_of_the_packages_and_no_other(wheel: Path) -> None:
    ours = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    about = f"heliograph-{VERSION}.dist-info/"
    assert {name for name in _contents(wheel) if not name.startswith(about)} == ours
    assert {f"{package}/py.typed" for package in PACKAGES} <= ours
    assert about + "licenses/LICENSE" in _contents(wheel)


def test_license_is_an_spdx_expression(wheel: Path) -> None:
    metadata = _metadata(wheel)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert not [one for one in metadata.get_all("Classifier", []) if one.startswith("License")]
    assert "Apache-2.0" in (ROOT / "README.md").read_text()


def test_wheel_of_the_sdist_is_the_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    again = _build(tmp_path / f"heliograph-{VERSION}", tmp_path / "again", "wheel")
    assert _contents(again) == _contents(wheel)


def test_sdist_has_what_a_packager_reads(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "docs/index.md"} <= names
    assert {name.partition("/")[0] for name in names} & {"tests", "bench", ".ci"} == set()
    assert not [name for name in names if "node_modules" in name or "__pycache__" in name]


def test_version_is_the_same_everywhere(full: Clean, tmp_path: Path) -> None:
    assert _run(full, tmp_path, "--version").stdout == f"heliograph {VERSION}\n"
    headings = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == VERSION


def _pins(lock: str) -> set[str]:
    return set(re.findall(r"^([\w.-]+==[^ ]+)", (ROOT / lock).read_text(), re.MULTILINE))


def test_lock_of_a_gateway_is_what_the_tests_run_with() -> None:
    """Its own versions of the same resolution; every requirement of a gateway is in it."""
    pins = _pins("requirements-gateway.lock")
    assert pins <= _pins("requirements.lock")
    assert {pin.partition("==")[0] for pin in pins} >= OF_NODE | OF_GATEWAY
    assert {pin.partition("==")[0] for pin in pins} & {"pytest", "mypy", "ruff", "selenium"} == set()


def test_ray_is_in_no_lock_and_in_no_other_extra() -> None:
    """docs/adr/0071-gateways-on-ray.md"""
    extras = PROJECT["optional-dependencies"]
    assert [name for name, wanted in extras.items() if "ray" in map(_name, wanted)] == ["ray"]
    assert "ray" not in {pin.partition("==")[0] for pin in _pins("requirements.lock")}


# ---- what a device has ---------------------------------------------------------------------------------------------


def test_device_has_none_of_the_gateways_packages(bare: Clean) -> None:
    assert bare.installed() >= OF_NODE
    assert bare.installed() & (OF_GATEWAY - OF_NODE) == set()


SAID = r"heliograph: \w+ is not installed, which this command needs: pip install 'heliograph\[gateway\]'\n"
OPTIONS = ("serve --help", "serve --check --data x", "demo -- y", "node check --list", "node enroll --tenant acme")


@pytest.mark.parametrize("command", [*(one for one in COMMANDS if one not in ON_A_DEVICE), *OPTIONS])
def test_command_of_a_gateway_names_the_line_to_type(bare: Clean, tmp_path: Path, command: str) -> None:
    done = _run(bare, tmp_path, *command.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(SAID, done.stderr), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_command_that_turns_out_to_need_a_gateway_names_the_line_too(
    bare: Clean, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_BEARER_TOKEN", "x" * 64)
    done = _run(bare, tmp_path, "project", "ls")
    assert done.returncode == 2
    assert re.fullmatch(SAID, done.stderr), done.stderr


def test_device_lists_every_command(bare: Clean, tmp_path: Path) -> None:
    shown = _run(bare, tmp_path, "--help").stdout
    assert [one for one in COMMANDS if f"\n    {one} " not in shown] == []
    assert _run(bare, tmp_path, "schema", "list").returncode == 0
    assert "--gateway URL" in _run(bare, tmp_path, "node", "run", "--help").stdout


INSTALL = (ROOT / "docs" / "how-to" / "install.md").read_text()


def test_page_on_installing_has_the_commands_that_are_tried_here(bare: Clean, tmp_path: Path) -> None:
    installs = re.findall(r"^/opt/heliograph/bin/pip install '?([^' ]+)'? --find-links dist$", INSTALL, re.MULTILINE)
    assert installs == ["heliograph[gateway]", "heliograph"]
    started = re.findall(r"^/opt/heliograph/bin/heliograph (\w+)", INSTALL, re.MULTILINE)
    assert started == ["demo", "node"]
    ((command, shown),) = re.findall(r"```console\n\$ heliograph (.*)\n(.*\n)```", INSTALL)
    assert _run(bare, tmp_path, *command.split()).stderr == shown


def test_page_on_installing_counts_the_packages_of_both(bare: Clean, full: Clean) -> None:
    ((of_node, of_gateway),) = re.findall(r"(\d+) packages instead of (\d+)", INSTALL)
    assert (len(bare.installed()) - 1, len(full.installed()) - 1) == (int(of_node), int(of_gateway))


# ---- both at work --------------------------------------------------------------------------------------------------


def _until_there(file: Path, process: subprocess.Popen[bytes], output: Path) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while not file.exists() or not file.read_text().endswith("\n"):
        assert process.poll() is None, output.read_text()
        assert time.monotonic() < deadline
    return file.read_text()


@pytest.fixture(scope="module")
def demo(full: Clean, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("demo")
    ready, output = folder / "ready.json", folder / "output"
    with output.open("wb") as out:
        process = subprocess.Popen(
            [full.bin / "heliograph", "demo", "--nodes", "1", "--data", "data", "--ready-file", str(ready)],
            cwd=folder,
            env=_environment(),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield json.loads(_until_there(ready, process, output)) | {"folder": folder}
    finally:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0, output.read_text()


def _until_live(node: str, full: Clean, data: str, process: subprocess.Popen[bytes], output: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        listed = json.loads(_run(full, output.parent, "nodes", "--json", "--data", data).stdout)
        if [one for one in listed if one["name"] == node and one["state"] == "live"]:
            return
        assert process.poll() is None, output.read_text()
        assert time.monotonic() < deadline, output.read_text()


def _echo(demo: dict[str, Any], node: str) -> Any:
    body = {"tool": "system_echo_invoke", "arguments": {"node": node, "message": "hello"}}
    request = urllib.request.Request(
        demo["http"] + "/mcp/tools/call",
        data=json.dumps(body).encode(),
        headers={"authorization": f"Bearer {demo['agent_token']}"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        return json.load(response)


def test_wheel_with_the_gateway_runs_the_demo(demo: dict[str, Any]) -> None:
    assert _echo(demo, demo["nodes"][0])["message"] == "hello"


def test_bare_wheel_is_a_node_of_it(demo: dict[str, Any], bare: Clean, full: Clean, tmp_path: Path) -> None:
    data = str(demo["folder"] / "data")
    enroll = ["node", "enroll", "--tenant", demo["tenant"], "--name", NODE, "--out", "my-node", "--data", data]
    enrolled = _run(full, tmp_path, *enroll)
    assert enrolled.returncode == 0, enrolled.stderr
    output = tmp_path / "output"
    with output.open("wb") as out:
        process = subprocess.Popen(
            [bare.bin / "heliograph", "node", "run", "my-node", "--gateway", demo["devices"]],
            cwd=tmp_path,
            env=_environment(),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        _until_live(NODE, full, data, process, output)
        assert _echo(demo, NODE)["message"] == "hello"
    finally:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0, output.read_text()
