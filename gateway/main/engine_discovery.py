"""What `[engine] mqtt…` says, made into what tells MQTT clients of nodes."""

from collections.abc import Callable
from pathlib import Path

from actors.bus.directory import Directory
from gateway.engine.credentials import Credentials
from gateway.engine.discovery import Discovery
from gateway.engine.mqtt_client import MqttClient, MqttSettings
from gateway.main.engine_settings import EngineSettings
from gateway.main.settings import Address, SettingsError


def discovery_of(
    engine: EngineSettings,
    who: Credentials,
    process: str,
    directory: Directory,
    wall_ms: Callable[[], int],
    is_janitor: Callable[[], bool],
) -> Discovery:
    """Raises SettingsError."""
    assert engine.mqtt is not None
    if who.nkey is not None:
        raise SettingsError("engine.mqtt_credentials: MQTT takes USER:PASSWORD or a token, and no NKey")
    address = Address.parse(engine.mqtt)
    settings = MqttSettings(
        host=address.host,
        port=address.port,
        user=who.user,
        password=who.password if who.token is None else who.token,
        tls=any(server.startswith("tls://") for server in engine.servers),
        tls_ca=None if engine.tls_ca is None else Path(engine.tls_ca),
    )
    return Discovery(MqttClient(settings, f"heliograph-{process}"), directory, wall_ms, is_janitor)
