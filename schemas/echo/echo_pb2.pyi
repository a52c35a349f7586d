from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class KvWrite(_message.Message):
    __slots__ = ("value", "ttl_seconds", "expires_at_ms", "encrypt")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ENCRYPT_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    ttl_seconds: int
    expires_at_ms: int
    encrypt: bool
    def __init__(self, value: _Optional[bytes] = ..., ttl_seconds: _Optional[int] = ..., expires_at_ms: _Optional[int] = ..., encrypt: _Optional[bool] = ...) -> None: ...

class KvEntry(_message.Message):
    __slots__ = ("key", "value", "version", "updated_at_ms", "expires_at_ms", "encrypted")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ENCRYPTED_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    version: int
    updated_at_ms: int
    expires_at_ms: int
    encrypted: bool
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ..., version: _Optional[int] = ..., updated_at_ms: _Optional[int] = ..., expires_at_ms: _Optional[int] = ..., encrypted: _Optional[bool] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("uid", "conn", "subs", "state_json", "since_ms", "member_id")
    UID_FIELD_NUMBER: _ClassVar[int]
    CONN_FIELD_NUMBER: _ClassVar[int]
    SUBS_FIELD_NUMBER: _ClassVar[int]
    STATE_JSON_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    uid: str
    conn: str
    subs: _containers.RepeatedScalarFieldContainer[str]
    state_json: str
    since_ms: int
    member_id: str
    def __init__(self, uid: _Optional[str] = ..., conn: _Optional[str] = ..., subs: _Optional[_Iterable[str]] = ..., state_json: _Optional[str] = ..., since_ms: _Optional[int] = ..., member_id: _Optional[str] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("type", "id", "uid", "tuid", "sub", "conn", "seq", "at_ms", "member_id", "json", "bin", "subs", "members", "self", "replay", "recovered", "delivered", "total", "error", "message", "retry_after_ms", "epoch", "space_id", "expires_at_ms", "access_token")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    TUID_FIELD_NUMBER: _ClassVar[int]
    SUB_FIELD_NUMBER: _ClassVar[int]
    CONN_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    BIN_FIELD_NUMBER: _ClassVar[int]
    SUBS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    SELF_FIELD_NUMBER: _ClassVar[int]
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SPACE_ID_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ACCESS_TOKEN_FIELD_NUMBER: _ClassVar[int]
    type: str
    id: str
    uid: str
    tuid: str
    sub: str
    conn: str
    seq: int
    at_ms: int
    member_id: str
    json: str
    bin: bytes
    subs: _containers.RepeatedScalarFieldContainer[str]
    members: _containers.RepeatedCompositeFieldContainer[Member]
    self: bool
    replay: bool
    recovered: bool
    delivered: int
    total: int
    error: str
    message: str
    retry_after_ms: int
    epoch: str
    space_id: str
    expires_at_ms: int
    access_token: str
    def __init__(self_, type: _Optional[str] = ..., id: _Optional[str] = ..., uid: _Optional[str] = ..., tuid: _Optional[str] = ..., sub: _Optional[str] = ..., conn: _Optional[str] = ..., seq: _Optional[int] = ..., at_ms: _Optional[int] = ..., member_id: _Optional[str] = ..., json: _Optional[str] = ..., bin: _Optional[bytes] = ..., subs: _Optional[_Iterable[str]] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., self: _Optional[bool] = ..., replay: _Optional[bool] = ..., recovered: _Optional[bool] = ..., delivered: _Optional[int] = ..., total: _Optional[int] = ..., error: _Optional[str] = ..., message: _Optional[str] = ..., retry_after_ms: _Optional[int] = ..., epoch: _Optional[str] = ..., space_id: _Optional[str] = ..., expires_at_ms: _Optional[int] = ..., access_token: _Optional[str] = ...) -> None: ...
