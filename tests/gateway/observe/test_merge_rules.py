"""Pages of several processes as one: each series says whose it is, each family stands once."""

from gateway.observe.metrics.merge_rules import merged
from gateway.observe.metrics.text import Family, gauge, render
from tests.gateway.api.exposition import read


def page(nodes: int) -> bytes:
    calls = Family("calls_total", "counter", "Calls.", (("", {"door": 'a "b" 1'}, nodes), ("", {"door": "x"}, 2)))
    return render([gauge("nodes", "Nodes.", nodes), calls])


def test_every_series_is_there_once_for_each_process() -> None:
    both = merged({"0": page(3), "1": page(4)}).decode()
    assert both.count("# HELP nodes ") == both.count("# TYPE calls_total ") == 1
    assert both.splitlines()[:4] == [
        "# HELP nodes Nodes.",
        "# TYPE nodes gauge",
        'nodes{process="0"} 3',
        'nodes{process="1"} 4',
    ]
    assert 'calls_total{process="1",door="a \\"b\\" 1"} 4' in both
    assert read(both).kinds == {"nodes": "gauge", "calls_total": "counter"}


def test_a_page_alone_is_labelled_too() -> None:
    assert b'nodes{process="7"} 1\n' in merged({"7": page(1)})
