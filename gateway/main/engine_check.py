"""What keeps a gateway from being one of several, as far as settings say: each with what to do instead."""

from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from gateway.main.data_folder import PLACES_MAX
from gateway.main.engine_settings import EngineSettings
from gateway.main.settings import Address, Settings, SettingsError

_SCHEMES = ("nats", "tls")
_ANY = {"0.0.0.0", "::", "*"}
FEEDS_MOST = 25_000  # whose names fit into one message of 1 MiB, which NATS takes by default
_MISSING = "engine.url needs a client of NATS: pip install 'heliograph[gateway,engine]'"


def check_engine(settings: Settings) -> None:
    """Raises SettingsError. Says nothing of a gateway that is alone, and asks nobody over the network."""
    engine = settings.engine
    if engine.url is None:
        if engine.processes != 1:
            raise SettingsError("engine.processes: several processes need an engine: give its address with --engine")
        return
    if find_spec("nats") is None:
        raise SettingsError(_MISSING)
    if engine.mqtt is not None:
        _check_mqtt(engine)
    if settings.echo.enabled:
        raise SettingsError(
            "spaces (echo.enabled) are not there on an engine yet: run them on a gateway by itself, without engine.url"
        )
    _check_url(engine)
    if engine.internal_listen is not None:
        internal = Address.parse(engine.internal_listen)
        if not 0 < internal.port <= 65_535 - PLACES_MAX:
            raise SettingsError(f"engine.internal_listen is HOST:PORT, with a port from 1 to {65_535 - PLACES_MAX}")
        if internal.host in _ANY:
            raise SettingsError(
                f"engine.internal_listen: other gateways connect to {internal.host}; name an address of this machine"
            )
    _check_bounds(engine)
    for name in ("credentials", "system_credentials", "mqtt_credentials", "tls_ca"):
        path = getattr(engine, name)
        if path is not None and not Path(path).is_file():
            raise SettingsError(f"engine.{name} names no file: {path}")


def _check_mqtt(engine: EngineSettings) -> None:
    assert engine.mqtt is not None
    if find_spec("paho") is None:
        raise SettingsError("engine.mqtt needs a client of MQTT: pip install 'heliograph[gateway,engine]'")
    if Address.parse(engine.mqtt).port == 0:
        raise SettingsError("engine.mqtt is HOST:PORT")


def _check_url(engine: EngineSettings) -> None:
    for server in engine.servers or ("",):
        try:
            parts = urlsplit(server)
            is_whole = parts.scheme in _SCHEMES and bool(parts.hostname) and not parts.path and parts.port != 0
        except ValueError:  # a port that is none
            is_whole = False
        if not is_whole:
            raise SettingsError("engine.url is nats://HOST:PORT, or several of these with commas between them")
        if parts.username is not None:
            raise SettingsError("engine.url has a password in it, which others can read: use engine.credentials")


def _check_bounds(engine: EngineSettings) -> None:
    if not 1 <= engine.processes <= PLACES_MAX:
        raise SettingsError(f"engine.processes is from 1 to {PLACES_MAX}")
    if not 1 <= engine.replicas <= 5:
        raise SettingsError("engine.replicas is 1, 3 or 5: at most as many as there are servers")
    if not 0 < engine.heartbeat_s * 2 < engine.dead_s or engine.dead_s < 1:
        raise SettingsError("engine.dead_s is more than two heartbeats (engine.heartbeat_s), and at least 1")
    if engine.lost_s_max <= engine.heartbeat_s or engine.stale_s_max <= engine.heartbeat_s:
        raise SettingsError("engine.lost_s_max and engine.stale_s_max are more than one heartbeat (engine.heartbeat_s)")
    if engine.leave_s <= engine.stale_s_max:
        raise SettingsError("engine.leave_s is more than engine.stale_s_max, so that a watcher can begin anew before")
    if not 2 <= engine.batch_min <= engine.batch_max <= 1000:
        raise SettingsError("engine.batch_min is from 2 to engine.batch_max, and that at most 1000")
    if not 1 <= engine.feeds_max <= FEEDS_MOST:
        raise SettingsError(f"engine.feeds_max is from 1 to {FEEDS_MOST}: one message has to name them all")
    if engine.listeners_max < 1:
        raise SettingsError("engine.listeners_max is at least 1")
    if (
        engine.append_patience_s <= 0
        or min(engine.clock_skew_ms_max, engine.purse_timeout_ms) <= 0
        or engine.log_bytes_max <= 0
    ):
        raise SettingsError(
            "engine.append_patience_s, clock_skew_ms_max, purse_timeout_ms and log_bytes_max are more than 0"
        )
