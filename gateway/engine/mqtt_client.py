"""An MQTT client: paho-mqtt in a thread of its own, for what NATS's own clients cannot say: retained messages.

Nothing here waits for the network. Of a topic that is to be retained only the latest payload waits, however long the
server is away; news that cannot leave now are dropped.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import structlog
import trio
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode

from actors.supervision.crash_report import report

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

_REDIAL_S = 1, 30  # between two attempts to connect, doubled from one to the next
_CONNECT_S_MAX = 5.0  # for the server to answer; then it is tried again
_KEEPALIVE_S = 15  # between two pings; a server that leaves one unanswered is given up
_END_S_MAX = 5.0  # for the thread to end; then it is left to itself, and ends with the process


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """Where the listener is, who we are there, and every bound."""

    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    tls_ca: Path | None = None  # None: the system's authorities
    unacked_max: int = 64  # retained messages that the server has not acknowledged; the others wait
    unsent_max: int = 1_000  # news that the thread has not written; the next one is dropped
    unheard_max: int = 65_536  # messages that trio has not heard of; further ones are dropped


class MqttClient:
    """Made in trio; `run` it as long as it is used. Callbacks are called between two steps of trio's event loop."""

    def __init__(self, settings: MqttSettings, client_id: str) -> None:
        self.on_connected: Callable[[], None] = lambda: None
        """Subscriptions are gone: subscribe again."""
        self.heard: Callable[[str, bytes], None] = lambda _topic, _payload: None
        self.is_connected = False
        self.dropped = 0  # news that did not leave, and messages that were not heard
        self._settings = settings
        self._waiting: dict[str, bytes] = {}  # to be retained, by topic
        self._unacked: dict[int, tuple[str, bytes]] = {}  # by mid
        self._unsent: set[int] = set()  # mids of news
        self._incoming: deque[Callable[[], None]] = deque()
        self._token: trio.lowlevel.TrioToken | None = None
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id, clean_session=True)
        self._client.connect_timeout = _CONNECT_S_MAX
        self._client.reconnect_delay_set(*_REDIAL_S)
        self._client.max_inflight_messages_set(settings.unacked_max)
        if settings.user is not None or settings.password is not None:
            self._client.username_pw_set(settings.user or "heliograph", settings.password)
        if settings.tls:
            self._client.tls_set(None if settings.tls_ca is None else str(settings.tls_ca))
        self._client.on_connect = self._connected
        self._client.on_disconnect = self._disconnected
        self._client.on_publish = self._published
        self._client.on_message = self._arrived

    async def run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._client.connect_async(self._settings.host, self._settings.port, _KEEPALIVE_S)
        self._client.loop_start()
        try:
            await trio.sleep_forever()
        finally:
            self._client.disconnect()
            with trio.CancelScope(shield=True), trio.move_on_after(_END_S_MAX):
                await trio.to_thread.run_sync(self._client.loop_stop, abandon_on_cancel=True)
            self._token, self.is_connected = None, False

    # ---- for trio ---------------------------------------------------------------------------------------------------

    def retain(self, topic: str, payload: bytes) -> None:
        """Have it stand there; empty: have nothing stand there. Until the server has it, or a later one replaces it."""
        self._waiting.pop(topic, None)
        self._waiting[topic] = payload
        self._send_waiting()

    def send(self, topic: str, payload: bytes) -> None:
        """For whoever listens now, at most once."""
        if not self.is_connected or len(self._unsent) >= self._settings.unsent_max:
            self.dropped += 1
            return
        sent = self._client.publish(topic, payload, qos=0)
        if sent.rc == MQTTErrorCode.MQTT_ERR_SUCCESS:
            self._unsent.add(sent.mid)
        else:
            self.dropped += 1

    def subscribe(self, topic: str) -> None:
        """Until the connection ends, or `unsubscribe`. First comes what is retained."""
        self._client.subscribe(topic, qos=1)

    def unsubscribe(self, topic: str) -> None:
        self._client.unsubscribe(topic)

    def _send_waiting(self) -> None:
        while self.is_connected and self._waiting and len(self._unacked) < self._settings.unacked_max:
            topic = next(iter(self._waiting))
            payload = self._waiting.pop(topic)
            sent = self._client.publish(topic, payload, qos=1, retain=True)
            if sent.rc == MQTTErrorCode.MQTT_ERR_QUEUE_SIZE:
                self._waiting.setdefault(topic, payload)
                return
            self._unacked[sent.mid] = topic, payload  # should the connection end first, paho publishes it again

    # ---- the other thread -------------------------------------------------------------------------------------------

    def _connected(self, _client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._hand_over(partial(log.warning, "mqtt_refused", code=int(reason.value)))
        else:
            self._hand_over(self._note_connected)

    def _disconnected(self, *_: Any) -> None:
        self._hand_over(self._note_disconnected)

    def _published(self, _client: Any, _data: Any, mid: int, *_: Any) -> None:
        self._hand_over(partial(self._note_published, mid))

    def _arrived(self, _client: Any, _data: Any, message: mqtt.MQTTMessage) -> None:
        if len(self._incoming) >= self._settings.unheard_max:
            self.dropped += 1
            return
        self._hand_over(partial(self._note_arrived, message.topic, bytes(message.payload)))

    def _hand_over(self, call: Callable[[], None]) -> None:
        self._incoming.append(call)
        token = self._token
        if token is not None:
            with suppress(trio.RunFinishedError):  # then nobody is left to be told
                token.run_sync_soon(self._hear, idempotent=True)

    # ---- in trio again ----------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        while self._incoming:
            call = self._incoming.popleft()
            try:
                call()
            except Exception as error:  # of whoever listens: the others hear theirs
                log.error("mqtt_message_not_taken", causes=report(error))

    def _note_connected(self) -> None:
        self.is_connected = True
        log.info("mqtt_connected")
        self.on_connected()
        self._send_waiting()

    def _note_disconnected(self) -> None:
        if self.is_connected:
            self.is_connected = False
            log.warning("mqtt_lost")
        self._unsent.clear()  # at most once: they are gone

    def _note_published(self, mid: int) -> None:
        self._unsent.discard(mid)
        if self._unacked.pop(mid, None) is not None:
            self._send_waiting()

    def _note_arrived(self, topic: str, payload: bytes) -> None:
        self.heard(topic, payload)
