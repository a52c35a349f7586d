"""`echo.proto` and the generated module beside it say the same. No compiler is needed: the text is read here."""

import re
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2

from schemas.echo import echo_pb2

PROTO = Path(echo_pb2.__file__).with_name("echo.proto").read_text()
FIELD = re.compile(r"(?:(optional|repeated) )?(\w+) (\w+) = (\d+);")
# name, number, type, label (optional with presence, repeated, or neither), oneof
Field = tuple[str, int, str, str, str]


def in_text() -> dict[str, list[Field]]:
    """The messages of the file, by a grammar just as large as it needs."""
    messages: dict[str, list[Field]] = {}
    fields: list[Field] = []
    oneof = ""
    for line in re.sub(r"//.*", "", PROTO).splitlines():
        line = line.strip()
        if found := re.fullmatch(r"message (\w+) \{", line):
            fields = messages[found[1]] = []
        elif found := re.fullmatch(r"oneof (\w+) \{", line):
            oneof = found[1]
        elif found := FIELD.fullmatch(line):
            label, kind, name, number = found.groups()
            fields.append((name, int(number), kind, label or "", oneof))
        elif line == "}":
            oneof = ""
        else:
            assert line in ("", 'syntax = "proto3";', "package echo.v1;"), line
    return messages


def in_module() -> dict[str, list[Field]]:
    file: Any = descriptor_pb2.FileDescriptorProto()
    echo_pb2.DESCRIPTOR.CopyToProto(file)
    assert (file.syntax, file.package) == ("proto3", "echo.v1")
    return {message.name: [_field(message, field) for field in message.field] for message in file.message_type}


def _field(message: Any, field: Any) -> Field:
    kind = field.type_name.rpartition(".")[2] or field.Type.Name(field.type).removeprefix("TYPE_").lower()
    label = "optional" if field.proto3_optional else "repeated" if field.label == field.LABEL_REPEATED else ""
    is_in_oneof = field.HasField("oneof_index") and not field.proto3_optional
    return (field.name, field.number, kind, label, message.oneof_decl[field.oneof_index].name if is_in_oneof else "")


def test_generated_module_has_the_messages_of_the_proto_file() -> None:
    assert in_module() == in_text()


def test_published_fields_keep_their_numbers() -> None:
    numbers = {message: {name: number for name, number, *_ in fields} for message, fields in in_text().items()}
    assert numbers == {
        "KvWrite": {"value": 1, "ttl_seconds": 2, "expires_at_ms": 3, "encrypt": 4},
        "KvEntry": {
            "key": 1, "value": 2, "version": 3, "updated_at_ms": 4, "expires_at_ms": 5, "encrypted": 6,
        },
        "Member": {"uid": 1, "conn": 2, "subs": 3, "state_json": 4, "since_ms": 5, "member_id": 6},
        "Frame": {
            "type": 1, "id": 2, "uid": 3, "tuid": 4, "sub": 5, "conn": 6, "seq": 7, "at_ms": 8, "member_id": 9,
            "json": 10, "bin": 11, "subs": 12, "members": 13, "self": 14, "replay": 15, "recovered": 16,
            "delivered": 17, "total": 25, "error": 18, "message": 19, "retry_after_ms": 20, "epoch": 21,
            "space_id": 22, "expires_at_ms": 23, "access_token": 24,
        },
    }  # fmt: skip
