"""What has to exist in JetStream, how it has to be set, and what is wrong with what is there. Pure.

Every problem comes with its remedy. Settings are named as they are in a stream's configuration, which
`nats stream edit --interactive` shows: the flags of that command differ from version to version. Numbers that an
operator may choose (bytes, more replicas than asked for) are no problems.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.engine.nats_runs import FORM, Names
from gateway.engine.settings import EngineSettings

SERVER_MIN = (2, 12, 3)
PAYLOAD_BYTES_MIN = 1024**2  # results, manifests and runs are messages; one that does not fit would be lost in silence
LIVE, MANIFESTS, CONFIG = "LIVE", "MANIFESTS", "CONFIG"  # buckets
LASTING = (MANIFESTS,)  # buckets whose messages cannot be given an end
FORM_KEY, LOG_ID_KEY = "heliograph_form", "heliograph_log_id"  # in the metadata of the log's stream
_MARKER_NS = 60 * 10**9  # for which a key that expired is told to watchers that were away
_RECREATE = "it cannot be changed: `nats stream backup` it, delete it, and start a gateway, which creates it again"


@dataclass(frozen=True, slots=True)
class Problem:
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"


@dataclass(frozen=True, slots=True)
class _Must:
    """A setting of a stream that has to be as it is."""

    key: str
    value: object
    absent: object = None  # what it is where a server leaves it out
    is_fixed: bool = False  # it is what it was made as


def log_config(names: Names, settings: EngineSettings, log_id: str) -> dict[str, Any]:
    return {
        "name": names.log,
        "subjects": [names.log_subjects],
        "storage": "file",
        "num_replicas": settings.replicas,
        "max_bytes": settings.log_bytes_max,
        "metadata": {FORM_KEY: str(FORM), LOG_ID_KEY: log_id},
        **{must.key: must.value for must in _LOG_MUSTS if must.value not in ("default", None)},
    }


_LOG_MUSTS = (
    _Must("retention", "limits", is_fixed=True),
    _Must("discard", "new"),
    _Must("max_age", 0, 0),
    _Must("max_msgs", -1, -1),
    _Must("max_msgs_per_subject", -1, -1),
    _Must("allow_atomic", True, False),
    _Must("allow_rollup_hdrs", True, False),
    _Must("allow_direct", True, False),
    _Must("deny_delete", False, False, is_fixed=True),
    _Must("deny_purge", False, False, is_fixed=True),
    _Must("sealed", False, False, is_fixed=True),
    _Must("persist_mode", "default", "default", is_fixed=True),
)


def bucket_config(names: Names, settings: EngineSettings, bucket: str) -> dict[str, Any]:
    name = names.bucket(bucket)
    config = {
        "name": f"KV_{name}",
        "subjects": [f"$KV.{name}.>"],
        "storage": "memory" if bucket == LIVE else "file",
        "num_replicas": settings.replicas,
        "max_bytes": settings.bucket_bytes_max,
        "max_msgs_per_subject": 1,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "allow_direct": True,
        "deny_delete": True,
    }
    if bucket not in LASTING:
        config["allow_msg_ttl"] = True
    if bucket == LIVE:
        config["subject_delete_marker_ttl"] = _MARKER_NS
    return config


def server_problems(version: tuple[int, int, int], payload_bytes_max: int) -> list[Problem]:
    problems = []
    if version < SERVER_MIN:
        found, wanted = (".".join(map(str, each)) for each in (version, SERVER_MIN))
        remedy = f"upgrade it to {wanted} or newer, which has atomic batches"
        problems.append(Problem(f"the NATS server is {found}", remedy))
    if payload_bytes_max < PAYLOAD_BYTES_MIN:
        remedy = f"set max_payload to {PAYLOAD_BYTES_MIN}, which is NATS's default, or more, on every server"
        problems.append(Problem(f"NATS takes no message above {payload_bytes_max} bytes", remedy))
    return problems


def sync_problems(is_always: bool | None, settings: EngineSettings) -> list[Problem]:
    """`is_always` as the servers say it; None: they do not tell us."""
    if is_always or (is_always is None and settings.sync_is_always):
        return []
    remedy = "set `sync_interval: always` in the `jetstream` block of every server"
    if is_always is None:
        return [
            Problem("whether NATS syncs every write cannot be read", f"{remedy}, then engine.sync_is_always = true")
        ]
    return [Problem("a NATS server acknowledges writes that are not on its disk", remedy)]


def log_problems(names: Names, settings: EngineSettings, found: Mapping[str, Any]) -> list[Problem]:
    """Of the log's stream as it is."""
    problems = _differences(names.log, found, _LOG_MUSTS)
    problems += _storage_problems(names.log, found, "file", settings)
    if found.get("subjects") != [names.log_subjects]:
        remedy = _set(names.log, "subjects", [names.log_subjects])
        problems.append(Problem(f"{names.log} takes other subjects", remedy))
    if found.get("max_bytes", -1) < 1:
        remedy = f"{_set(names.log, 'max_bytes', settings.log_bytes_max)}, or to anything well below what the disk has"
        problems.append(Problem(f"{names.log} has no bound and may fill the disk", remedy))
    form = found.get("metadata", {}).get(FORM_KEY)
    if form != str(FORM):
        remedy = (
            "set another engine.prefix" if form is None else "use the version of Heliograph that wrote it, or a newer"
        )
        problems.append(Problem(f"{names.log} is not a log that this version writes", remedy))
    return problems


def bucket_problems(names: Names, settings: EngineSettings, bucket: str, found: Mapping[str, Any]) -> list[Problem]:
    wanted = bucket_config(names, settings, bucket)
    stream = wanted["name"]
    musts = [_Must("max_msgs_per_subject", 1), _Must("discard", "new")]
    if "allow_msg_ttl" in wanted:
        musts.append(_Must("allow_msg_ttl", True, False))
    return [*_differences(stream, found, musts), *_storage_problems(stream, found, wanted["storage"], settings)]


def identity_problems(names: Names, log_id: str | None, stream_log_id: str | None) -> list[Problem]:
    """The log's id as the bucket has it, and as its stream has it; None: there is no such key, or no such stream."""
    if log_id is None or log_id == stream_log_id:
        return []
    key = f"nats kv del {names.bucket(CONFIG)} log_id"
    if stream_log_id is None:
        what, remedy = f"{names.log} is gone", "restore it from a backup"
    else:
        what, remedy = f"{names.log} is another log than before", "restore the one that was there"
    return [Problem(what, f"{remedy}; or, to begin with this one and no history, {key}")]


def _storage_problems(stream: str, found: Mapping[str, Any], storage: str, settings: EngineSettings) -> list[Problem]:
    problems = []
    if found.get("storage") != storage:
        problems.append(Problem(f"{stream} is not kept in {storage} storage", _RECREATE))
    if found.get("num_replicas", 1) < settings.replicas:
        remedy = f"{_set(stream, 'num_replicas', settings.replicas)}, or lower engine.replicas"
        problems.append(Problem(f"{stream} has fewer than {settings.replicas} replicas", remedy))
    return problems


def _differences(stream: str, found: Mapping[str, Any], musts: tuple[_Must, ...] | list[_Must]) -> list[Problem]:
    return [
        Problem(f"{stream} has another {must.key}", _RECREATE if must.is_fixed else _set(stream, must.key, must.value))
        for must in musts
        if found.get(must.key, must.absent) != must.value
    ]


def _set(stream: str, key: str, value: object) -> str:
    return f"set {key} to {json.dumps(value)} (nats stream edit --interactive {stream})"
