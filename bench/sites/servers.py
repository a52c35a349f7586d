"""The two servers of bench.sites, each in a process of its own on one core, with the same files."""

import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

SERVER_CORE, LOAD_CORE = 0, 1
ROOT = Path(__file__).parent.parent.parent
SIZES = {"small.bin": 4 * 1024, "large.bin": 1024 * 1024, "huge.bin": 25 * 1024 * 1024}
HOST = "bench.localhost"
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
    command = [
        "taskset",
        "-c",
        str(SERVER_CORE),
        sys.executable,
        "-m",
        "bench.sites",
        "--serve",
        str(files),
        str(folder),
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.readline()
    process.stdout.close()
    if not said:
        raise SystemExit("our own server did not start")
    return process, int(said)


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


def serve_ours(files: Path, folder: Path) -> None:
    """The door with one site, whose contents lie in a folder as those of published files do."""
    import gc

    import trio

    from actors.project.blob_files import BlobFiles
    from actors.project.site import Site, SiteObject
    from actors.space.key_files import Disk
    from actors.supervision.supervisor import Supervisor
    from gateway.main.server import GC_THRESHOLDS
    from gateway.net.asgi import AsgiScope, Receive, Send
    from gateway.net.http1.door import Door
    from gateway.projects.site_contents import SiteContents
    from gateway.projects.site_host_rules import SiteHosts
    from gateway.projects.site_routes import SiteRoutes

    blobs = BlobFiles(folder / "sites", Disk())
    objects: dict[str, SiteObject] = {}
    for name in SIZES:
        content = (files / name).read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        blobs.path(sha256).write_bytes(content)
        objects[name] = SiteObject(name, sha256, len(content), "", 1_700_000_000_000)

    class Bench:
        project_id = "bench"

        def object(self, path: str) -> SiteObject | None:
            return objects.get(path)

        def has_folder(self, _: str) -> bool:
            return False

    class Directory:
        def site(self, label: str) -> Site | None:
            return site if label == "bench" else None

    async def nobody(scope: AsgiScope, receive: Receive, send: Send) -> None:
        raise AssertionError("a request for a site came to the main application")

    async def main() -> None:
        gc.set_threshold(*GC_THRESHOLDS)
        async with trio.open_nursery() as nursery:
            supervisor = Supervisor()
            await nursery.start(supervisor.run)
            contents = SiteContents(blobs)
            contents.start(supervisor)
            routes = SiteRoutes(Directory(), contents, SiteHosts("localhost", "localhost"))
            door = Door(supervisor, nobody, body_bytes_max=lambda _: 0, sites=routes.at)
            print(await door.listen("127.0.0.1", 0), flush=True)

    site = Bench()
    trio.run(main)
