"""What runs a gateway elsewhere says what is true: commands and options exist, settings load, ports and paths agree.

`make deployment` has linters look at the same files.
"""

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from gateway.commands.cli import parser_for
from gateway.commands.processes import STOP_S_MAX as PROCESSES_STOP_S
from gateway.engine.server_run import server_binary
from gateway.main.settings import Settings, load
from gateway.main.settings_reading import PREFIX

ROOT = Path(__file__).parents[2]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
IMAGE = f"heliograph:{VERSION}"
CONTAINERFILE = re.sub(r"\\\n\s*", "", (ROOT / "Containerfile").read_text())
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
PROBES = {"/healthz", "/readyz"}  # routes of docs/reference/access.md
EXPOSURE_MAX = 2.0  # of ten, by systemd-analyze; it calls 2.0 and less OK


def _line(word: str) -> str:
    lines: list[str] = re.findall(rf"^{word} (.*)$", CONTAINERFILE, re.MULTILINE)
    return lines[-1]


def _array(word: str) -> list[str]:
    found: list[str] = yaml.safe_load(_line(word).partition("[")[1] + _line(word).partition("[")[2])
    return found


def _parsed(argv: list[str]) -> argparse.Namespace:
    """An option or a command that does not exist ends this with SystemExit."""
    return parser_for(argv).parse_args(argv)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _compose() -> Any:
    return yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["gateway"]


def _cluster() -> dict[str, Any]:
    documents = yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "heliograph.yaml").read_text())
    return {document["kind"]: document for document in documents}


# ---- the container -------------------------------------------------------------------------------------------------


def test_container_starts_a_gateway_on_the_ports_that_it_exposes() -> None:
    assert _array("ENTRYPOINT") == ["heliograph"]
    serve = _parsed(_array("CMD"))
    assert [_port(serve.http), _port(serve.devices)] == [int(port) for port in _line("EXPOSE").split()]
    (health,) = re.findall(r"http://127\.0\.0\.1:(\d+)(/\w+)", _line("HEALTHCHECK"))
    assert health[0] == str(_port(serve.http))
    assert health[1] in PROBES


def test_health_check_of_the_container_is_python() -> None:
    python, option, code = _array("HEALTHCHECK")
    assert (python, option) == ("python3", "-c")
    compile(code, "HEALTHCHECK", "exec")


@pytest.mark.parametrize("status", [200, 503])
def test_health_check_asks_the_gateway_and_no_proxy(status: int) -> None:
    """Docker hands the proxies of its host to every container."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_request(self, *_: object) -> None:
            pass

    _, _, code = _array("HEALTHCHECK")
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.handle_request, daemon=True).start()
        here = code.replace(":8420/", f":{server.server_port}/")
        done = subprocess.run(
            [sys.executable, "-c", here],
            env={"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"},
            capture_output=True,
            check=False,
            timeout=60,
        )
    assert (done.returncode == 0) is (status == 200)


def test_container_is_built_of_files_that_are_there_and_sent_to_the_builder() -> None:
    allowed = {line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line.startswith("!")}
    copied = [
        name for line in re.findall(r"^COPY (?!--)(.*) \S+$", CONTAINERFILE, re.MULTILINE) for name in line.split()
    ]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert set(copied) == allowed
    assert "--require-hashes --only-binary=:all: -r requirements-gateway.lock" in CONTAINERFILE


def test_container_keeps_everything_in_its_volume() -> None:
    (data,) = re.findall(r"HELIOGRAPH_DATA=(\S+)", _line("ENV"))
    assert data == _line("VOLUME") == _line("WORKDIR")
    assert f"-m 0700 {data}" in _line("RUN")


def test_user_of_the_container_is_the_same_everywhere_and_not_root() -> None:
    user = _line("USER")
    uid, gid = user.split(":")
    assert 0 not in (int(uid), int(gid))
    assert f"--gid {gid} " in _line("RUN")
    assert f"--uid {uid} " in _line("RUN")
    assert _compose()["user"] == user
    pod = _cluster()["StatefulSet"]["spec"]["template"]["spec"]["securityContext"]
    assert (pod["runAsNonRoot"], pod["runAsUser"], pod["runAsGroup"], pod["fsGroup"]) == (
        True,
        int(uid),
        int(gid),
        int(gid),
    )


# ---- compose -------------------------------------------------------------------------------------------------------


def test_compose_runs_the_image_with_a_root_that_is_read_only() -> None:
    gateway = _compose()
    assert gateway["image"] == IMAGE
    assert gateway["build"]["dockerfile"] == "Containerfile"
    assert gateway["read_only"] is True
    assert gateway["cap_drop"] == ["ALL"]
    assert gateway["security_opt"] == ["no-new-privileges:true"]
    assert [mount.split(":")[1] for mount in gateway["volumes"]] == [_line("VOLUME")]


def test_compose_publishes_the_ports_of_its_command_on_this_machine_alone() -> None:
    gateway = _compose()
    serve = _parsed(gateway["command"])
    ports = [_port(serve.http), _port(serve.devices)]
    assert gateway["ports"] == [f"127.0.0.1:{port}:{port}" for port in ports]


def test_variables_of_compose_are_settings() -> None:
    variables: dict[str, str] = _compose()["environment"]
    assert all(name.startswith(PREFIX) for name in variables)
    assert isinstance(load(None, variables, {}), Settings)


# ---- several gateways on NATS --------------------------------------------------------------------------------------

NATS = ROOT / "deploy" / "nats"


def _several() -> Any:
    return yaml.safe_load((NATS / "compose.yaml").read_text())["services"]


@pytest.mark.parametrize("name", ["nats-1", "nats-2", "nats-3"])
def test_configuration_of_each_nats_server_is_one(name: str) -> None:
    command = _several()[name]["command"]
    assert command == ["--config", "/etc/nats.conf", "--name", name]
    checked = subprocess.run(
        [server_binary(), "-t", "--config", NATS / "nats.conf", "--name", name],
        env={"SYS_PASSWORD": "secret"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    assert "sync_interval: always" in (NATS / "nats.conf").read_text()


def test_settings_of_several_gateways_load_and_name_these_servers() -> None:
    settings = load(NATS / "heliograph.toml", {}, {})
    assert settings.engine.url == ",".join(f"nats://{name}:4222" for name in _several() if name.startswith("nats"))
    assert settings.engine.sync_is_always is True


@pytest.mark.parametrize("name", ["gateway-1", "gateway-2"])
def test_each_of_several_gateways_runs_as_the_one_of_compose_does(name: str) -> None:
    gateway, alone = _several()[name], _compose()
    serve = _parsed(gateway["command"])
    inside = [_port(serve.http), _port(serve.devices)]
    assert [int(port.rpartition(":")[2]) for port in gateway["ports"]] == inside
    assert all(port.startswith("127.0.0.1:") for port in gateway["ports"])
    for key in ("image", "user", "read_only", "cap_drop", "security_opt", "ulimits", "init", "tmpfs"):
        assert gateway[key] == alone[key], key
    variables: dict[str, str] = gateway["environment"]
    assert load(None, variables, {}).engine.internal_listen == f"{name}:9000"  # the other reaches it by this name
    mounted = {mount.split(":")[1] for mount in gateway["volumes"]}
    assert mounted == {str(serve.config), load(NATS / "heliograph.toml", {}, {}).engine.credentials, _line("VOLUME")}


# ---- systemd -------------------------------------------------------------------------------------------------------


def _unit(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^(\w+)=(.*)$", path.read_text(), re.MULTILINE))


def test_units_of_several_gateways_differ_where_they_must() -> None:
    """Instances share the folders of the unit by itself; one that stops leaves the others theirs."""
    one, several = (_unit(ROOT / "deploy" / "systemd" / f"{name}.service") for name in ("heliograph", "heliograph@"))
    kept = {"RuntimeDirectoryPreserve": "yes"}
    named = {"Description": f"{one['Description']} %i", "TimeoutStopSec": f"{PROCESSES_STOP_S:g}s"}
    assert several == one | named | kept


def test_units_run_commands_that_exist() -> None:
    gateway, node = (
        _unit(ROOT / "deploy" / "systemd" / f"{name}.service") for name in ("heliograph", "heliograph-node")
    )
    program, *arguments = shlex.split(gateway["ExecStart"])
    serve = _parsed(arguments)
    assert program.endswith("/bin/heliograph")
    assert serve.data == f"/var/lib/{gateway['StateDirectory']}"
    assert gateway["ExecReload"] == "/bin/kill -HUP $MAINPID"
    program, *arguments = shlex.split(node["ExecStart"])
    run = _parsed(arguments)
    assert run.folder.parent == Path(f"/var/lib/{node['StateDirectory']}")
    assert run.gateway == "${GATEWAY}"
    assert "AF_NETLINK" in node["RestrictAddressFamilies"], "getifaddrs asks the kernel over it"


def test_units_of_a_page_run_the_same_program_as_the_same_user() -> None:
    """systemd looks for a bare name in the folders of the system alone."""
    page = (ROOT / "docs" / "how-to" / "back-up-and-restore.md").read_text()
    (text,) = [block for block in re.findall(r"```ini\n(.*?)```", page, re.DOTALL) if "ExecStart=" in block]
    said = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    gateway = _unit(ROOT / "deploy" / "systemd" / "heliograph.service")
    program, *arguments = shlex.split(said["ExecStart"])
    assert program == shlex.split(gateway["ExecStart"])[0]
    assert said["User"] == gateway["User"]
    assert said["Environment"] == f"HELIOGRAPH_DATA=/var/lib/{gateway['StateDirectory']}"
    folder = _parsed(arguments).out
    assert f"install -d -o {said['User']} -g {gateway['Group']} -m 0700 {folder}\n" in page
    assert f"find {folder} " in said["ExecStartPost"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_unit_is_not_root_and_not_restarted_for_wrong_use(unit: Path) -> None:
    said = _unit(unit)
    assert said["User"] == said["Group"] == said["StateDirectory"] == unit.stem.removesuffix("@")
    assert said["RestartPreventExitStatus"] == "2"
    page = (ROOT / "docs" / "how-to" / "run-with-systemd.md").read_text()
    assert f"--system --user-group --no-create-home --shell /usr/sbin/nologin {said['User']}\n" in page


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_unit_is_hardened(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert float(exposure) <= EXPOSURE_MAX


# ---- Kubernetes ----------------------------------------------------------------------------------------------------


def test_settings_of_the_cluster_load_and_agree_with_its_ports(tmp_path: Path) -> None:
    cluster = _cluster()
    ((name, text),) = cluster["ConfigMap"]["data"].items()
    (tmp_path / name).write_text(text)
    settings = load(tmp_path / name, {}, {})
    pod = cluster["StatefulSet"]["spec"]["template"]["spec"]
    (gateway,) = pod["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in gateway["volumeMounts"]}
    assert str(_parsed(gateway["args"]).config) == f"{mounts['settings']}/{name}"
    assert str(settings.data) == mounts["data"] == _line("VOLUME")
    ports = {port["name"]: port["containerPort"] for port in gateway["ports"]}
    assert ports == {"http": _port(settings.http.listen), "devices": _port(settings.devices.listen)}
    assert {port["targetPort"]: port["port"] for port in cluster["Service"]["spec"]["ports"]} == ports


def test_pod_is_restricted_and_probed() -> None:
    spec = _cluster()["StatefulSet"]["spec"]
    (gateway,) = spec["template"]["spec"]["containers"]
    assert spec["replicas"] == 1
    assert gateway["image"] == IMAGE
    assert gateway["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    probes = {name: gateway[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {probe["path"] for probe in probes.values()} == PROBES
    assert {probe["port"] for probe in probes.values()} == {"http"}
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    assert _cluster()["Service"]["spec"]["selector"] == spec["selector"]["matchLabels"]
