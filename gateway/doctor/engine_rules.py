"""What the NATS servers of an engine mean for a gateway that needs them. Pure."""

from collections.abc import Iterator, Sequence

from gateway.doctor.facts import EngineServer
from gateway.doctor.finding import Finding, Severity

ABOUT = "engine"


def engine_findings(servers: Sequence[EngineServer]) -> Iterator[Finding]:
    """Of those that have an address: what none is, is told with the settings."""
    named = [server for server in servers if server.name]
    silent = [server for server in named if not server.answers]
    is_cut_off = len(silent) == len(named)
    for server in silent:
        yield Finding(
            Severity.ERROR if is_cut_off else Severity.WARNING,
            ABOUT,
            f"engine.url: cannot connect to {server.name} ({server.why})",
            "start that nats-server, let this machine through to it, or correct engine.url"
            if is_cut_off
            else "start that nats-server: the others serve alone until then",
        )
    for server in named:
        if server.has_jetstream is False:
            yield Finding(
                Severity.ERROR,
                ABOUT,
                f"engine.url: {server.name} is a nats-server without JetStream, which keeps the log",
                "switch JetStream on in its configuration, with `sync_interval: always`",
            )
