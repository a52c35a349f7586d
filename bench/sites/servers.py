"""The two servers of bench.sites, each in a process of its own on one core, with the same files."""

import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import psutil

SERVER_CORE, LOAD_CORE = 0, 1
ROOT = Path(__file__).parent.parent.parent
SIZES = {"small.bin": 4 * 1024, "large.bin": 1024 * 1024, "huge.bin": 25 * 1024 * 1024}
HOST = "bench.localhost"
BEARER = "bench-bench-bench-bench-bench-bench"
NGINX_CONF = """
daemon off;
worker_processes 1;
worker_cpu_affinity {cpu_mask};
user root;
pid {folder}/nginx.pid;
error_log {folder}/error.log error;
events {{ worker_connections 2048; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  types {{ application/octet-stream bin; }}
  keepalive_requests 1000000000;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    server_name {host};
    root {root};
  }}
}}
"""


def missing() -> list[str]:
    """What has to be installed first."""
    needs = {"a C compiler: apt install gcc": "cc", "nginx: apt install nginx-light": "nginx"}
    return [
        what for what, program in needs.items() if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None
    ]


def write_files(folder: Path) -> None:
    for name, size in SIZES.items():
        (folder / name).write_bytes(os.urandom(size))


@dataclass(frozen=True)
class Server:
    name: str
    pid: int  # of the process that does the work
    port: int

    def rss_bytes(self) -> int:
        rss: int = psutil.Process(self.pid).memory_info().rss
        return rss

    def cpu_s(self) -> float:
        used = psutil.Process(self.pid).cpu_times()
        return used.user + used.system


@contextlib.contextmanager
def serving(name: str, files: Path, folder: Path) -> Iterator[Server]:
    folder.mkdir()
    start = {"ours": _start_ours, "nginx": _start_nginx}[name]
    process, port = start(files, folder)
    try:
        yield Server(name, _worker(process, port), port)
    finally:
        process.terminate()
        process.wait(10)


def _start_nginx(files: Path, folder: Path) -> tuple[subprocess.Popen[str], int]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    conf = folder / "nginx.conf"
    mask = bin(1 << SERVER_CORE)[2:]
    conf.write_text(NGINX_CONF.format(folder=folder, port=port, root=files, host=HOST, cpu_mask=mask))
    folder.chmod(0o755)
    nginx = shutil.which("nginx") or "/usr/sbin/nginx"
    command = ["taskset", "-c", str(SERVER_CORE), nginx, "-p", str(folder), "-c", str(conf)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True), port


def _start_ours(files: Path, folder: Path) -> tuple[subprocess.Popen[str], int]:
    command = ["taskset", "-c", str(SERVER_CORE), sys.executable, "-m", "bench.sites", "--serve", str(folder)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.readline()
    process.stdout.close()
    if not said:
        raise SystemExit("our own server did not start")
    _publish(int(said), files)
    return process, int(said)


def _publish(port: int, files: Path) -> None:
    wish = json.dumps({"name": "Bench", "domain": HOST})
    project = json.loads(_call(port, "POST", "/api/projects", wish.encode(), {"Content-Type": "application/json"}))
    for name in SIZES:
        _call(port, "PUT", f"/api/projects/{project['project_id']}/static/{name}", (files / name).read_bytes())


def _call(port: int, method: str, path: str, body: bytes, headers: Mapping[str, str] = {}) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request(method, path, body, {"Authorization": f"Bearer {BEARER}", **headers})
    response = connection.getresponse()
    answered = response.read()
    connection.close()
    if response.status != HTTPStatus.CREATED:
        raise SystemExit(f"{method} {path}: {response.status} {answered.decode()}")
    return answered


def _worker(process: subprocess.Popen[str], port: int) -> int:
    """Once it listens. nginx has a process that watches over the one that works."""
    for _ in range(500):
        if process.poll() is not None:
            break
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            workers = psutil.Process(process.pid).children()
            return workers[0].pid if workers else process.pid
        time.sleep(0.02)
    raise SystemExit("a server did not start")


# ---- ours ------------------------------------------------------------------------------------------------------------


def serve_ours(folder: Path) -> None:
    """A whole gateway, on any port, which is printed."""
    import structlog
    import trio

    from gateway.main.server import running
    from gateway.main.settings import load
    from gateway.main.signals import until_signalled

    async def main() -> None:
        settings = {
            "data": str(folder / "data"),
            "http.listen": "127.0.0.1:0",
            "devices.listen": "127.0.0.1:0",
            "echo.enabled": True,
            "echo.disk_free_min": 0.0,
            "projects.api_bearer_token": BEARER,
        }
        async with running(load(None, {}, settings)) as gateway:
            print(gateway.http.rpartition(":")[2], flush=True)
            await until_signalled()

    with (folder / "log").open("w") as lines:
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(lines))
        trio.run(main)
