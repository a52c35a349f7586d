"""Requests a second that one core answers: the door beside hypercorn (trio) and uvicorn (uvloop, httptools).

    python -m bench.door [--tls] [--rounds 7] [--seconds 2] [--connections 16]

The same bare ASGI handler, which takes a small JSON body and answers with one, under each server, in a process of its
own on one core; the load on the other: a C program (compiled here) with keep-alive connections that each send the next
request when they have the whole answer. Rounds alternate between the servers, and medians count.

Two numbers. *Requests a CPU-second* of the server process: this one decides, because on a machine that others use too
the load is held up on its core, and a server that is quick enough then waits for it. *Requests a second* as the clock
has it. The share of its core that each server and the load took is printed beside them.

With `--tls`, all three and the load speak TLS 1.3, with the same certificate. The connections stay open: what is
measured is sealing and opening, not handshakes.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.certificate import TLS_LIBRARIES, write_pem

SERVERS = ("door", "hypercorn", "uvicorn")
SERVER_CORE, LOAD_CORE = 0, 1
TIMES_HYPERCORN_MIN, TIMES_UVICORN_MIN = 5.0, 0.45
TIMES_HYPERCORN_TLS_MIN = 4.0
WARM_UP_S = 0.5
ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results" / "door.json"
ANSWER = json.dumps({"echo": "hello", "node_id": "01arz3ndektsv4rrffq69g5fav", "ts_ms": 1745300000000}).encode()

LOAD_C = r"""
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef TLS
#include <openssl/ssl.h>
static SSL_CTX *tls;
static SSL *ssl[1024];
static void secure(int i, int fd) {
    if (!tls) tls = SSL_CTX_new(TLS_client_method());
    ssl[i] = SSL_new(tls);
    SSL_set_fd(ssl[i], fd);
    if (SSL_connect(ssl[i]) != 1) { fprintf(stderr, "SSL_connect\n"); exit(1); }
}
#define WRITE(i, data, size) SSL_write(ssl[i], data, size)
#define READ(i, into, room) SSL_read(ssl[i], into, room)
#else
static void secure(int i, int fd) { (void)i; (void)fd; }
#define WRITE(i, data, size) write(polls[i].fd, data, size)
#define READ(i, into, room) read(polls[i].fd, into, room)
#endif

static const char body[] = "{\"tool\":\"sysecho.node.echo.invoke\",\"arguments\":{\"msg\":\"hello\"}}";
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }

int main(int argc, char **argv) {
    int port = atoi(argv[1]), count = atoi(argv[2]);
    double seconds = atof(argv[3]);
    char request[1024];
    int size = snprintf(request, sizeof request,
        "POST /mcp/tools/call HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench\r\nAccept: application/json\r\n"
        "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\nContent-Type: application/json\r\n"
        "Content-Length: %zu\r\n\r\n%s", sizeof body - 1, body);
    struct pollfd polls[1024];
    static char answers[1024][4096];
    int filled[1024] = {0};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < count; i++) {
        polls[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        polls[i].events = POLLIN;
        if (connect(polls[i].fd, (struct sockaddr *)&to, sizeof to)) { perror("connect"); return 1; }
        secure(i, polls[i].fd);
        if (WRITE(i, request, size) != size) return 1;
    }
    long done = 0;
    double began = now(), ended = began;
    while (ended - began < seconds) {
        if (poll(polls, count, 1000) < 0) return 1;
        for (int i = 0; i < count; i++) {
            if (!polls[i].revents) continue;
            ssize_t got = READ(i, answers[i] + filled[i], sizeof answers[i] - 1 - filled[i]);
            if (got <= 0) { fprintf(stderr, "closed\n"); return 1; }
            filled[i] += got;
            answers[i][filled[i]] = 0;
            char *end = strstr(answers[i], "\r\n\r\n"), *length = strcasestr(answers[i], "\r\ncontent-length: ");
            if (!end) continue;
            if (!length || strncmp(answers[i], "HTTP/1.1 200", 12)) { fprintf(stderr, "%s\n", answers[i]); return 1; }
            if (filled[i] < end + 4 - answers[i] + atoi(length + 18)) continue;
            filled[i] = 0;
            done++;
            if (WRITE(i, request, size) != size) return 1;
        }
        ended = now();
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("%ld %f %f\n", done, ended - began, cpu);
    return 0;
}
"""


async def handler(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    assert scope["type"] == "http"
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": ANSWER})


# ---- the servers ---------------------------------------------------------------------------------------------------


def serve(name: str, port: int, pem: str | None) -> None:
    os.sched_setaffinity(0, {SERVER_CORE})
    {"door": serve_door, "hypercorn": serve_hypercorn, "uvicorn": serve_uvicorn}[name](port, pem)


def serve_door(port: int, pem: str | None) -> None:
    import trio

    from actors.supervision.supervisor import Supervisor
    from gateway.net.http1.door import Door
    from gateway.net.tls import server_context

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            supervisor = Supervisor()
            await nursery.start(supervisor.run)
            tls = server_context("http", pem, pem)
            door = Door(supervisor, handler, body_bytes_max=lambda _: 64 * 1024, tls=tls)
            await door.listen("127.0.0.1", port)

    trio.run(main)


def serve_hypercorn(port: int, pem: str | None) -> None:
    import trio
    from hypercorn.config import Config
    from hypercorn.trio import serve

    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.certfile = config.keyfile = pem
    config.errorlog = None
    config.keep_alive_max_requests = 1_000_000_000
    trio.run(serve, handler, config)  # type: ignore[arg-type]


def serve_uvicorn(port: int, pem: str | None) -> None:
    import uvicorn

    uvicorn.run(
        handler,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
        ssl_certfile=pem,
        ssl_keyfile=pem,
    )


# ---- the load ------------------------------------------------------------------------------------------------------


def compiled_load(folder: Path, *libraries: str) -> Path:
    source, program = folder / "load.c", folder / "load"
    source.write_text(LOAD_C)
    subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", "-o", program, source, *libraries], check=True)
    return program


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def wait_until_up(port: int, server: subprocess.Popen[bytes]) -> None:
    while server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            continue
    raise SystemExit("a server did not start")


@dataclass(frozen=True)
class Round:
    per_s: float
    per_cpu_s: float
    server_share: float
    load_share: float


def load(program: Path, port: int, server: int, connections: int, seconds: float) -> Round:
    command = ["taskset", "-c", str(LOAD_CORE), str(program), str(port), str(connections), str(seconds)]
    before_s = cpu_s(server)
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    server_s = cpu_s(server) - before_s
    done, elapsed_s, load_s = int(said[0]), float(said[1]), float(said[2])
    return Round(done / elapsed_s, done / server_s, server_s / elapsed_s, load_s / elapsed_s)


def cpu_s(pid: int) -> float:
    used = psutil.Process(pid).cpu_times()
    return used.user + used.system


def measure(rounds: int, seconds: float, connections: int, *, tls: bool) -> dict[str, list[Round]]:
    found: dict[str, list[Round]] = {name: [] for name in SERVERS}
    with tempfile.TemporaryDirectory() as folder:
        program = compiled_load(Path(folder), *TLS_LIBRARIES * tls)
        secured = ["--pem", str(write_pem(Path(folder)))] if tls else []
        ports = {name: free_port() for name in SERVERS}
        servers = {
            name: subprocess.Popen([sys.executable, "-m", "bench.door", "--serve", name, str(port), *secured], cwd=ROOT)
            for name, port in ports.items()
        }
        try:
            for name, port in ports.items():
                wait_until_up(port, servers[name])
                load(program, port, servers[name].pid, connections, WARM_UP_S)
            for _ in range(rounds):
                for name, port in ports.items():
                    found[name].append(load(program, port, servers[name].pid, connections, seconds))
        finally:
            for server in servers.values():
                server.kill()
                server.wait()
    return found


def median(rounds: list[Round]) -> Round:
    return Round(*(statistics.median(column) for column in zip(*map(astuple, rounds), strict=True)))


def main() -> int:
    parser = argparse.ArgumentParser(description="The door beside hypercorn and uvicorn.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--pem", help=argparse.SUPPRESS)
    parser.add_argument("--serve", nargs=2, metavar=("SERVER", "PORT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve[0], int(options.serve[1]), options.pem)
        return 0
    found = measure(options.rounds, options.seconds, options.connections, tls=options.tls)
    medians = {name: median(rounds) for name, rounds in found.items()}
    print(f"{'server':<12}{'per CPU-s':>12}{'lowest':>10}{'highest':>10}{'per s':>10}{'server':>9}{'load':>7}")
    for name, typical in medians.items():
        rates = [one.per_cpu_s for one in found[name]]
        print(
            f"{name:<12}{typical.per_cpu_s:>12,.0f}{min(rates):>10,.0f}{max(rates):>10,.0f}"
            f"{typical.per_s:>10,.0f}{typical.server_share:>9.0%}{typical.load_share:>7.0%}"
        )
    times = {name: medians["door"].per_cpu_s / medians[name].per_cpu_s for name in SERVERS[1:]}
    times_by_clock = {name: medians["door"].per_s / medians[name].per_s for name in SERVERS[1:]}
    hypercorn_min = TIMES_HYPERCORN_TLS_MIN if options.tls else TIMES_HYPERCORN_MIN
    met = times["hypercorn"] >= hypercorn_min and (options.tls or times["uvicorn"] >= TIMES_UVICORN_MIN)
    print(
        f"the door: {times['hypercorn']:.1f} x hypercorn (expected >= {hypercorn_min:g}), "
        f"{times['uvicorn']:.2f} x uvicorn (expected >= {TIMES_UVICORN_MIN:g}): {'met' if met else 'NOT MET'}; "
        f"by the clock {times_by_clock['hypercorn']:.1f} and {times_by_clock['uvicorn']:.2f}"
    )
    result = {
        "connections": options.connections,
        "medians": {name: asdict(typical) for name, typical in medians.items()},
        "rounds": {name: [asdict(one) for one in rounds] for name, rounds in found.items()},
        "times": times,
        "times_by_clock": times_by_clock,
        "met": met,
    }
    results = RESULTS.with_stem("door_tls") if options.tls else RESULTS
    results.parent.mkdir(exist_ok=True)
    results.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
