"""Messages between gateways over NATS: questions in the one inbox of the process's connection, news as they are told.

An answer that comes before the last one has a header of its own. NATS says itself when nobody serves a subject.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from actors.engine.hearing import heard
from actors.engine.messages import NO_HEADERS, News, NoReply, Reply, Request
from gateway.engine.link import INTERIM, Answer, Link, Message, NoAnswer

_INTERIM = {INTERIM: "1"}
_NO_REPLY = {
    NoAnswer.NOT_SENT: NoReply.NOT_SENT,
    NoAnswer.NO_RESPONDERS: NoReply.NO_RESPONDERS,
    NoAnswer.TIMED_OUT: NoReply.TIMED_OUT,
    NoAnswer.LOST: NoReply.LOST,
}


@dataclass(frozen=True, slots=True)
class _Taken:
    """A `Request`."""

    data: bytes
    headers: Mapping[str, str]
    _link: Link
    _to: str

    def interim(self, data: bytes) -> None:
        self._link.publish(self._to, data, _INTERIM)

    def reply(self, data: bytes) -> None:
        self._link.publish(self._to, data)


class NatsMessages:
    """A `Messages`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def payload_bytes_max(self) -> int:
        return self._link.payload_bytes_max

    def serve(self, subject: str, handle: Callable[[Request], None]) -> Callable[[], None]:
        def take(message: Message) -> None:
            if message.reply:  # else nobody asks
                handle(_Taken(message.data, message.headers, self._link, message.reply))

        return self._link.subscribe(subject, take)

    def listen(self, subject: str, deliver: Callable[[News], None]) -> Callable[[], None]:
        return self._link.subscribe(subject, lambda message: deliver(News(message.data, message.headers)))

    def publish(self, subject: str, data: bytes, headers: Mapping[str, str] = NO_HEADERS) -> None:
        self._link.publish(subject, data, headers)

    async def ask(
        self,
        subject: str,
        data: bytes,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        timeout_s: float,
        silence_s: float | None = None,
        on_interim: Callable[[bytes], None] | None = None,
    ) -> Reply | NoReply:
        def send(interim: Callable[[bytes], None], then: Callable[[Reply | NoReply], None]) -> None:
            def hear(answer: Answer) -> None:
                then(_NO_REPLY[answer] if isinstance(answer, NoAnswer) else Reply(answer.data))

            self._link.ask(subject, data, headers, timeout_s, hear, lambda message: interim(message.data))

        return await heard(send, silence_s, on_interim)
