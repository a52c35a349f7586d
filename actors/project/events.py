"""What happened to a project, as it lies in the log under `project/{id}`, and what follows from it.

Rooms are named here by their ids: their tokens lie sealed in their own streams. What holds now is written with each
event, as one record and one object for each published file, so that a start reads these and not history. Bytes of
files are elsewhere, under their hashes.
"""

from typing import TypeAlias

import msgspec

from actors.project.site import SiteObject
from schemas.echo.frames import Encoding


class _Event(msgspec.Struct, frozen=True, tag=lambda name: f"{name}@1", tag_field="event", forbid_unknown_fields=True):
    at_ms: int


class ProjectCreated(_Event, frozen=True):
    project_id: str
    name: str
    app_name: str
    label: str  # of its hostname; the suffix is a setting
    protocol: Encoding
    is_encrypted: bool
    is_multi_space: bool
    has_iam: bool  # its rooms begin with IAM on
    system_prompt: str | None


class SpaceAttached(_Event, frozen=True):
    """A room is this project's: a new one, one in the place of another, or itself once more with other words."""

    space_id: str
    name: str | None
    has_iam: bool  # by the operator's word: a room in its place begins so when this one is gone
    replaces: str | None = None  # this room; None: behind all others
    dropped: tuple[str, ...] = ()  # rooms that were over already


class PromptSet(_Event, frozen=True):
    system_prompt: str | None


class ObjectPublished(_Event, frozen=True):
    path: str
    sha256: str
    size: int
    content_type: str


class ObjectDeleted(_Event, frozen=True):
    path: str


class ProjectDeleted(_Event, frozen=True):
    pass


Event: TypeAlias = ProjectCreated | SpaceAttached | PromptSet | ObjectPublished | ObjectDeleted | ProjectDeleted


class AttachedSpace(msgspec.Struct, frozen=True):
    space_id: str
    name: str | None
    has_iam: bool


class ProjectRecord(msgspec.Struct, frozen=True):
    """A project but for its files."""

    project_id: str
    name: str
    app_name: str
    label: str
    protocol: Encoding
    is_encrypted: bool
    is_multi_space: bool
    has_iam: bool
    system_prompt: str | None
    created_at_ms: int
    spaces: tuple[AttachedSpace, ...] = ()  # the first one is the project's own; it may be over, as all of them


def created(event: ProjectCreated) -> ProjectRecord:
    return ProjectRecord(
        event.project_id,
        event.name,
        event.app_name,
        event.label,
        event.protocol,
        event.is_encrypted,
        event.is_multi_space,
        event.has_iam,
        event.system_prompt,
        event.at_ms,
    )


def evolve(record: ProjectRecord, event: Event) -> ProjectRecord:
    """The record after this event. Those of files change nothing in it."""
    match event:
        case SpaceAttached():
            attached = AttachedSpace(event.space_id, event.name, event.has_iam)
            kept = [space for space in record.spaces if space.space_id not in event.dropped]
            places = [space.space_id for space in kept]
            if event.replaces in places:
                kept[places.index(event.replaces)] = attached
            else:
                kept.append(attached)
            return msgspec.structs.replace(record, spaces=tuple(kept))
        case PromptSet(system_prompt=system_prompt):
            return msgspec.structs.replace(record, system_prompt=system_prompt)
        case _:
            return record


_encoder = msgspec.json.Encoder()
_event_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_record_decoder = msgspec.json.Decoder(ProjectRecord)
_object_decoder = msgspec.json.Decoder(SiteObject)


def encode(written: Event | ProjectRecord | SiteObject) -> bytes:
    return _encoder.encode(written)


def decode(data: bytes) -> Event:
    """Raises msgspec.MsgspecError, as all below."""
    return _event_decoder.decode(data)


def decode_record(data: bytes) -> ProjectRecord:
    return _record_decoder.decode(data)


def decode_object(data: bytes) -> SiteObject:
    return _object_decoder.decode(data)
