"""What has to be in JetStream, and what is said of what is not so: each problem with its remedy."""

from typing import Any

import pytest

from gateway.engine.nats_runs import Names
from gateway.engine.objects_rules import (
    CONFIG,
    LIVE,
    MANIFESTS,
    PAYLOAD_BYTES_MIN,
    Problem,
    bucket_config,
    bucket_problems,
    identity_problems,
    log_config,
    log_problems,
    server_problems,
    sync_problems,
)
from gateway.engine.settings import EngineSettings

NAMES = Names("hg")
SETTINGS = EngineSettings()
LOG: dict[str, Any] = log_config(NAMES, SETTINGS, "id")


def test_the_log_is_made_as_the_design_has_it() -> None:
    assert {key: LOG[key] for key in ("name", "subjects", "storage", "num_replicas", "discard")} == {
        "name": "HG_LOG",
        "subjects": ["hg.log.>"],
        "storage": "file",
        "num_replicas": 3,
        "discard": "new",
    }
    assert LOG["allow_atomic"] is LOG["allow_rollup_hdrs"] is LOG["allow_direct"] is True
    assert (LOG["max_age"], LOG["max_bytes"]) == (0, SETTINGS.log_bytes_max)
    assert log_problems(NAMES, SETTINGS, LOG) == []


@pytest.mark.parametrize(
    ("change", "what", "remedy"),
    [
        ({"discard": "old"}, "another discard", 'set discard to "new"'),
        ({"max_age": 1}, "another max_age", "set max_age to 0"),
        ({"max_msgs": 5}, "another max_msgs", "set max_msgs to -1"),
        ({"max_msgs_per_subject": 1}, "another max_msgs_per_subject", "set max_msgs_per_subject to -1"),
        ({"allow_atomic": False}, "another allow_atomic", "set allow_atomic to true"),
        ({"allow_atomic": None}, "another allow_atomic", "set allow_atomic to true"),
        ({"allow_rollup_hdrs": False}, "another allow_rollup_hdrs", "set allow_rollup_hdrs to true"),
        ({"allow_direct": False}, "another allow_direct", "set allow_direct to true"),
        ({"retention": "workqueue"}, "another retention", "cannot be changed"),
        ({"deny_purge": True}, "another deny_purge", "cannot be changed"),
        ({"deny_delete": True}, "another deny_delete", "cannot be changed"),
        ({"sealed": True}, "another sealed", "cannot be changed"),
        ({"persist_mode": "async"}, "another persist_mode", "cannot be changed"),
        ({"storage": "memory"}, "not kept in file storage", "backup"),
        ({"num_replicas": 1}, "fewer than 3 replicas", "set num_replicas to 3"),
        ({"subjects": ["hg.log.>", "x"]}, "other subjects", 'set subjects to ["hg.log.>"]'),
        ({"max_bytes": -1}, "no bound", "set max_bytes to"),
        ({"metadata": {}}, "not a log", "engine.prefix"),
        ({"metadata": {"heliograph_form": "2"}}, "not a log", "version of Heliograph"),
    ],
)
def test_a_log_that_is_set_otherwise_is_a_problem_with_a_remedy(change: dict[str, Any], what: str, remedy: str) -> None:
    found = {key: value for key, value in {**LOG, **change}.items() if value is not None}
    [problem] = log_problems(NAMES, SETTINGS, found)
    assert what in problem.what
    assert "HG_LOG" in problem.what
    assert remedy in problem.remedy


@pytest.mark.parametrize("change", [{"max_bytes": 5}, {"num_replicas": 5}, {"description": "mine"}])
def test_what_an_operator_may_choose_is_no_problem(change: dict[str, Any]) -> None:
    assert log_problems(NAMES, SETTINGS, {**LOG, **change}) == []


def test_what_a_server_leaves_out_is_what_it_means_by_that() -> None:
    absent = {"deny_delete", "deny_purge", "sealed", "persist_mode", "max_age"}
    assert log_problems(NAMES, SETTINGS, {key: value for key, value in LOG.items() if key not in absent}) == []


def test_all_that_is_wrong_is_said_at_once() -> None:
    assert len(log_problems(NAMES, SETTINGS, {**LOG, "discard": "old", "num_replicas": 1, "max_bytes": 0})) == 3


@pytest.mark.parametrize(("bucket", "storage"), [(LIVE, "memory"), (MANIFESTS, "file"), (CONFIG, "file")])
def test_buckets_are_made_as_the_design_has_it(bucket: str, storage: str) -> None:
    config = bucket_config(NAMES, SETTINGS, bucket)
    assert (config["name"], config["subjects"]) == (f"KV_HG_{bucket}", [f"$KV.HG_{bucket}.>"])
    assert (config["storage"], config["max_msgs_per_subject"], config["num_replicas"]) == (storage, 1, 3)
    assert ("allow_msg_ttl" in config) == (bucket != MANIFESTS)
    assert ("subject_delete_marker_ttl" in config) == (bucket == LIVE)
    assert bucket_problems(NAMES, SETTINGS, bucket, config) == []
    for change in ({"storage": "?"}, {"num_replicas": 1}, {"max_msgs_per_subject": 5}, {"discard": "old"}):
        [problem] = bucket_problems(NAMES, SETTINGS, bucket, {**config, **change})
        assert config["name"] in problem.what
    if "allow_msg_ttl" in config:
        del config["allow_msg_ttl"]
        [problem] = bucket_problems(NAMES, SETTINGS, bucket, config)
        assert "set allow_msg_ttl to true" in problem.remedy


@pytest.mark.parametrize(
    ("version", "is_enough"),
    [((2, 12, 3), True), ((2, 12, 2), False), ((2, 11, 9), False), ((3, 0, 0), True), ((0, 0, 0), False)],
)
def test_an_older_server_is_a_problem(version: tuple[int, int, int], is_enough: bool) -> None:
    problems = server_problems(version, PAYLOAD_BYTES_MIN)
    assert bool(problems) != is_enough
    assert all("2.12.3" in problem.remedy for problem in problems)


@pytest.mark.parametrize(
    ("said", "affirmed", "is_good"),
    [(True, False, True), (True, True, True), (False, True, False), (None, True, True), (None, False, False)],
)
def test_durability_is_read_or_affirmed(said: bool | None, affirmed: bool, is_good: bool) -> None:
    problems = sync_problems(said, EngineSettings(sync_is_always=affirmed))
    assert bool(problems) != is_good
    assert all("sync_interval: always" in problem.remedy for problem in problems)
    assert all(("engine.sync_is_always" in problem.remedy) == (said is None) for problem in problems)


@pytest.mark.parametrize(
    ("kept", "of_stream", "what"),
    [
        (None, None, None),  # before the first start
        (None, "a", None),  # somebody was interrupted
        ("a", "a", None),
        ("a", None, "is gone"),
        ("a", "b", "another log"),
    ],
)
def test_a_log_that_was_lost_or_exchanged_is_not_taken_for_an_empty_one(
    kept: str | None, of_stream: str | None, what: str | None
) -> None:
    problems = identity_problems(NAMES, kept, of_stream)
    assert [what in problem.what for problem in problems if what] == ([] if what is None else [True])
    assert all("nats kv del HG_CONFIG log_id" in problem.remedy for problem in problems)
    assert bool(problems) == (what is not None)


def test_a_problem_is_said_with_its_remedy() -> None:
    assert str(Problem("it is raining", "take an umbrella")) == "it is raining: take an umbrella"


@pytest.mark.parametrize(("payload_bytes_max", "is_enough"), [(65_536, False), (2**20 - 1, False), (2**20, True)])
def test_messages_of_a_gateway_fit_into_what_servers_take(payload_bytes_max: int, is_enough: bool) -> None:
    problems = server_problems((2, 12, 3), payload_bytes_max)
    assert [problem.what for problem in problems] == (
        [] if is_enough else [f"NATS takes no message above {payload_bytes_max} bytes"]
    )
    assert all("max_payload" in problem.remedy for problem in problems)
