"""The forms in which projects lie in logs: what was written once is read for good."""

import msgspec
import pytest

from actors.project.events import (
    AttachedSpace,
    ObjectPublished,
    ProjectCreated,
    ProjectRecord,
    created,
    decode,
    decode_object,
    decode_record,
    encode,
)
from actors.project.project_rules import Project
from actors.project.site import SiteObject
from schemas.echo.frames import Encoding

CREATED = (
    b'{"event":"ProjectCreated@1","at_ms":1,"project_id":"p","name":"Board","app_name":"The Board","label":"board",'
    b'"protocol":"json","is_encrypted":true,"is_multi_space":true,"has_iam":false,"system_prompt":null}'
)
HISTORY = (
    CREATED,
    b'{"event":"SpaceAttached@1","at_ms":1,"space_id":"a","name":null,"has_iam":false}',
    b'{"event":"SpaceAttached@1","at_ms":2,"space_id":"b","name":"two","has_iam":false}',
    b'{"event":"SpaceAttached@1","at_ms":3,"space_id":"c","name":null,"has_iam":true,"replaces":"a"}',
    b'{"event":"SpaceAttached@1","at_ms":4,"space_id":"d","name":"three","has_iam":false,"replaces":null,'
    b'"dropped":["b"]}',
    b'{"event":"PromptSet@1","at_ms":5,"system_prompt":"be brief"}',
    b'{"event":"ObjectPublished@1","at_ms":6,"path":"a/b.html","sha256":"00","size":7,"content_type":"text/html"}',
    b'{"event":"ObjectPublished@1","at_ms":7,"path":"c","sha256":"01","size":1,"content_type":""}',
    b'{"event":"ObjectDeleted@1","at_ms":8,"path":"c"}',
)
DELETED = b'{"event":"ProjectDeleted@1","at_ms":9}'
RECORD = (
    b'{"project_id":"p","name":"Board","app_name":"The Board","label":"board","protocol":"json","is_encrypted":true,'
    b'"is_multi_space":true,"has_iam":false,"system_prompt":"be brief","created_at_ms":1,'
    b'"spaces":[{"space_id":"c","name":null,"has_iam":true},{"space_id":"d","name":"three","has_iam":false}]}'
)
OBJECT = b'{"path":"a/b.html","sha256":"00","size":7,"content_type":"text/html","updated_at_ms":6}'


def test_history_comes_to_what_was_written_beside_it() -> None:
    first = decode(CREATED)
    assert isinstance(first, ProjectCreated)
    project = Project(created(first))
    for data in HISTORY[1:]:
        project.apply(decode(data))
    assert project.record == decode_record(RECORD)
    assert dict(project.objects) == {"a/b.html": decode_object(OBJECT)}
    assert not project.is_deleted
    project.apply(decode(DELETED))
    assert project.is_deleted


def test_record_and_object_are_read_as_they_were_written() -> None:
    spaces = (AttachedSpace("c", None, True), AttachedSpace("d", "three", False))
    record = ProjectRecord("p", "Board", "The Board", "board", Encoding.JSON, True, True, False, "be brief", 1, spaces)
    assert (decode_record(RECORD), encode(record)) == (record, RECORD)
    published = SiteObject("a/b.html", "00", 7, "text/html", 6)
    assert (decode_object(OBJECT), encode(published)) == (published, OBJECT)


@pytest.mark.parametrize("data", [*HISTORY, DELETED])
def test_every_event_is_written_as_it_is_read(data: bytes) -> None:
    event = decode(data)
    assert decode(encode(event)) == event


def test_published_event_names_hash_and_size() -> None:
    event = decode(HISTORY[6])
    assert isinstance(event, ObjectPublished)
    assert (event.sha256, event.size) == ("00", 7)


@pytest.mark.parametrize("data", [b"{}", b"[]", b'{"event":"Other@1","at_ms":1}', CREATED[:-1] + b',"more":1}'])
def test_what_is_not_one_of_these_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode(data)
