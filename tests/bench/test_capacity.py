"""The capacity model of docs/explanation/scaling.md, and that the page says what it computes."""

import itertools
import json
from dataclasses import replace

import msgspec
import pytest

from bench.engine.capacity import (
    CLAIMS,
    LIMITS,
    LOAD,
    NODES,
    PAGE,
    ROOT,
    Figures,
    Load,
    figures_of,
    number,
    part_of_page,
    parts,
    recorded,
    step,
    steps,
    with_parts,
)

FIGURES = figures_of(msgspec.to_builtins(recorded()))
NOTHING = Figures("2026-11-19", *[1e-9] * (len(Figures.__struct_fields__) - 1))
IDLE = Load(streams_a_node=0, frames_a_stream_per_s=0, calls_a_node_per_s=0, joins_a_node_per_day=0)


@pytest.mark.parametrize("part", parts())
def test_the_page_has_what_the_model_computes(part: str) -> None:
    assert part_of_page(part, PAGE.read_text()).splitlines() == parts()[part]
    assert with_parts(PAGE.read_text()) == PAGE.read_text()


def test_the_page_claims_each_row_that_was_measured_and_no_row_of_the_model() -> None:
    name, file = str(PAGE.relative_to(ROOT)), json.loads(CLAIMS.read_text())
    claimed = {
        text for claim in file["claims"] for place in claim["stands"] if place["page"] == name for text in place["text"]
    }
    rows = {line for line in parts()["measured"] if line.startswith("| ") and any(sign.isdigit() for sign in line)}
    assert rows <= claimed
    assert not claimed & set(parts()["model"])


def test_the_recorded_run_met_its_end_with_every_part() -> None:
    run = recorded()
    assert set(run.medians) == {"local calls", "remote calls", "fan-out", "relay"}
    assert set(run.appends) == {"R1", "R3"}
    assert all(value > 0 for name, value in run.memory.items())


def test_more_nodes_never_take_fewer_gateways_or_less_of_anything() -> None:
    each = steps(FIGURES)
    assert [one.nodes for one in each] == list(NODES)
    for smaller, larger in itertools.pairwise(each):
        assert smaller.gateways <= larger.gateways
        assert smaller.nats_cores <= larger.nats_cores
        assert smaller.appends_per_s <= larger.appends_per_s


@pytest.mark.parametrize(
    ("nodes", "load", "gateways", "bound_by"),
    [
        (LIMITS.nodes, IDLE, 1, "processor time"),
        (LIMITS.nodes + 1, IDLE, 2, "nodes of a gateway"),
        (1_000, replace(IDLE, streams_a_node=LIMITS.streams / 1_000), 1, "processor time"),
        (1_000, replace(IDLE, streams_a_node=2 * LIMITS.streams / 1_000), 2, "streams of a gateway"),
    ],
)
def test_a_limit_of_a_gateway_asks_for_another_and_is_named(
    nodes: int, load: Load, gateways: int, bound_by: str
) -> None:
    found = step(nodes, NOTHING, load, LIMITS)
    assert (found.gateways, found.bound_by) == (gateways, bound_by)


def test_gateways_are_added_until_each_is_busy_for_its_share() -> None:
    busy = msgspec.structs.replace(NOTHING, call_local_us=1e5, call_remote_us=1e5)  # a tenth of a second
    found = step(100, busy, replace(IDLE, calls_a_node_per_s=0.59), LIMITS)
    assert (found.gateways, found.bound_by) == (round(60 * 0.1 / LIMITS.share), "processor time")


def test_nodes_elsewhere_that_a_gateway_listens_to_are_limited() -> None:
    load = replace(IDLE, streams_a_node=1.0)
    few = replace(LIMITS, feeds=1_000)
    assert step(100_000, NOTHING, load, few).bound_by == "nodes listened to elsewhere"


def test_no_number_of_gateways_is_enough_for_what_each_has_to_do_by_itself() -> None:
    hearing = msgspec.structs.replace(NOTHING, join_there_us=1e6)
    with pytest.raises(ValueError, match="processor time"):
        step(10**6, hearing, replace(IDLE, joins_a_node_per_day=86_400), LIMITS)


def test_the_nearest_limit_is_the_one_that_is_most_used_up() -> None:
    large = msgspec.structs.replace(NOTHING, node_there_bytes=LIMITS.process_bytes / 10**6)
    found = step(2 * 10**6, large, IDLE, LIMITS)
    assert found.first == "memory of each gateway"
    assert found.first_share == pytest.approx(2 * (1 - 1 / found.gateways), rel=0.01)


def test_one_gateway_is_enough_for_as_many_nodes_as_it_takes_with_a_stream_each() -> None:
    assert step(LIMITS.nodes, FIGURES, replace(LOAD, streams_a_node=1), LIMITS).gateways == 1


def test_a_fleet_of_one_gateway_needs_no_engine() -> None:
    assert step(1_000, FIGURES, LOAD, LIMITS).first in ("processor time", "memory of each gateway")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"),
        (0.01234, "0.0123"),
        (1.005, "1.00"),
        (12.34, "12.3"),
        (99.96, "100"),
        (123.4, "123"),
        (123_456, "123,000"),
    ],
)
def test_a_number_has_three_digits(value: float, said: str) -> None:
    assert number(value) == said
