"""Every event comes back from its bytes as it went in, and nothing it must not hold fits into one."""

import pytest

from actors.node.history import (
    FINAL_STATE,
    CommandAcked,
    CommandCancelled,
    CommandCancelRequested,
    CommandExpired,
    CommandFailed,
    CommandInterrupted,
    CommandQueued,
    CommandSent,
    CommandState,
    CommandUnknown,
    Event,
    NodeResumed,
    SessionOpened,
    UndecodableEventError,
    decode,
    encode,
)

EVERY_KIND: list[Event] = [
    SessionOpened(1, 7, "01JD"),
    NodeResumed(2, 7, "journal", None, False),
    NodeResumed(2, 7, "journal", "01JE", True),
    CommandQueued(3, "01JF", "a.b.c.d", "agent_1", "acme", 99),
    CommandSent(4, "01JF", 7),
    CommandCancelRequested(5, "01JF"),
    CommandAcked(6, "01JF"),
    CommandFailed(6, "01JF", "E_INTERNAL"),
    CommandExpired(6, "01JF"),
    CommandExpired(6, "01JF"),
    CommandCancelled(6, "01JF"),
    CommandInterrupted(6, "01JF"),
    CommandUnknown(6, "01JF"),
]


@pytest.mark.parametrize("event", EVERY_KIND, ids=lambda event: type(event).__name__)
def test_an_event_survives_encoding(event: Event) -> None:
    assert decode(encode(event)) == event


@pytest.mark.parametrize("event", EVERY_KIND, ids=lambda event: type(event).__name__)
def test_an_event_cannot_be_changed(event: Event) -> None:
    with pytest.raises(AttributeError):
        event.at_ms = 0  # type: ignore[misc]
    assert not hasattr(event, "__dict__")


def test_the_bytes_name_the_kind_and_its_version() -> None:
    assert encode(CommandAcked(6, "01JF")) == b'{"event":"command_acked@1","at_ms":6,"msg_id":"01JF"}'


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"event":"command_acked@2","at_ms":6,"msg_id":"01JF"}',
        b'{"event":"command_acked@1","at_ms":6}',
        b'{"event":"command_acked@1","at_ms":6,"msg_id":"01JF","result":{}}',
    ],
)
def test_bytes_that_are_no_known_event_are_refused_without_quoting_them(data: bytes) -> None:
    with pytest.raises(UndecodableEventError) as caught:
        decode(data)
    assert "01JF" not in str(caught.value)


def test_every_final_state_is_entered_by_one_event() -> None:
    assert set(FINAL_STATE.values()) == set(CommandState) - {CommandState.QUEUED, CommandState.SENT}
