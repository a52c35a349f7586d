"""Starting each server of bench.fanout on its core, and telling it what to publish."""

import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.certificate import TLS_HEADER
from bench.fanout.frame import data

SERVER_CORE = 0
ROOT = Path(__file__).parent.parent.parent
NGINX_MODULE = Path("/usr/lib/nginx/modules/ngx_nchan_module.so")
GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n"
NAMES = {
    "ours": "heliograph",
    "limit": "C loop of write()",
    "nchan": "nchan (nginx)",
    "starlette": "uvicorn + sse-starlette",
    "quart": "hypercorn + quart-trio",
}

NGINX_CONF = """
load_module {module};
daemon off;
master_process on;
worker_processes 1;
worker_cpu_affinity {cpu_mask};
worker_rlimit_nofile 20000;
user root;
pid {folder}/nginx.pid;
error_log {folder}/error.log error;
events {{ worker_connections 19000; }}
http {{
  access_log off;
  tcp_nodelay on;
  keepalive_requests 1000000000;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  nchan_shared_memory_size 256M;
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    {tls}
    location = /publish {{
      nchan_publisher;
      nchan_channel_id bench;
      nchan_message_buffer_length 16;
    }}
    location = / {{
      nchan_subscriber eventsource;
      nchan_channel_id bench;
      nchan_eventsource_event metric;
      nchan_subscriber_first_message newest;
      nchan_subscriber_timeout 0;
    }}
  }}
}}
"""


OVER_TLS = ("ours", "nchan", "quart")


def missing(*, tls: bool = False) -> list[str]:
    """What has to be installed first."""
    needs: dict[str, object] = {"a C compiler: apt install gcc": shutil.which("cc")}
    needs["nchan: apt install nginx-light libnginx-mod-nchan"] = NGINX_MODULE.exists() and shutil.which("nginx")
    if tls:
        needs["headers of OpenSSL: apt install libssl-dev"] = TLS_HEADER.exists()
    return [what for what, there in needs.items() if not there]


@dataclass
class Server:
    """A running one. `pid` is the process that does the work."""

    name: str
    pid: int
    port: int
    request: bytes
    process: subprocess.Popen[str]
    publish: tuple[str | Path, ...]
    """How the load publishes a frame: `fifo`, where to write a stamp, or `post`, the request to put it into, and the
    port, if it is another one."""

    def rss_bytes(self) -> int:
        rss: int = psutil.Process(self.pid).memory_info().rss
        return rss

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def start(name: str, folder: Path, limit: Path, root: Path = ROOT, pem: Path | None = None) -> Server:
    """`root` is the tree that a server in Python is run from."""
    if name == "nchan":
        return start_nchan(folder, pem)
    event = folder / "event"
    event.write_bytes(b"event: metric\ndata: %b\n\n" % data())
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    command = [str(limit), str(event)] if name == "limit" else [sys.executable, "-m", "bench.fanout", "--serve", name]
    process = subprocess.Popen(
        ["taskset", "-c", str(SERVER_CORE), *command, str(fifo), *(["--pem", str(pem)] if pem else [])],
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=None if os.environ.get("FANOUT_DEBUG") else subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    said = process.stdout.readline().split()
    if not said:
        raise SystemExit(f"{name} did not start")
    request = bytes.fromhex(said[1]) if len(said) > 1 else GET
    return Server(name, process.pid, int(said[0]), request, process, ("fifo", fifo))


def start_nchan(folder: Path, pem: Path | None) -> Server:
    with socket.create_server(("127.0.0.1", 0)) as probe, socket.create_server(("127.0.0.1", 0)) as another:
        port, tls_port = probe.getsockname()[1], another.getsockname()[1]
    tls = ""
    if pem:
        tls = f"listen 127.0.0.1:{tls_port} ssl backlog=1024; ssl_certificate {pem}; ssl_certificate_key {pem};"
    conf = folder / "nginx.conf"
    conf.write_text(
        NGINX_CONF.format(module=NGINX_MODULE, folder=folder, port=port, tls=tls, cpu_mask=bin(1 << SERVER_CORE)[2:])
    )
    process = subprocess.Popen(
        ["taskset", "-c", str(SERVER_CORE), "nginx", "-p", str(folder), "-c", str(conf)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    body = data()
    post = folder / "post"
    post.write_bytes(
        b"POST /publish HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
        % (len(body), body)
    )
    for _ in range(200):
        time.sleep(0.02)
        workers = [child for child in psutil.Process(process.pid).children() if "worker" in " ".join(child.cmdline())]
        if workers and listens(port):
            publish = ("post", post, str(port)) if pem else ("post", post)
            return Server("nchan", workers[0].pid, tls_port if pem else port, GET, process, publish)
    raise SystemExit("nginx with nchan did not start")


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True
