"""The registry: the newest actor of each name, and an old one's end that never takes a newer one with it."""

from actors.supervision.registry import Registry


def test_a_named_actor_is_not_found_before_it_is_added() -> None:
    nodes: Registry[str, str] = Registry()
    entry = nodes.entry("n1", "actor")
    assert nodes.find("n1") is None
    nodes.add(entry)
    assert nodes.find("n1") == "actor"
    assert "n1" in nodes


def test_a_removed_actor_is_no_longer_found() -> None:
    nodes: Registry[str, str] = Registry()
    entry = nodes.entry("n1", "actor")
    nodes.add(entry)
    nodes.remove(entry)
    assert nodes.find("n1") is None
    assert len(nodes) == 0


def test_the_end_of_a_replaced_actor_leaves_the_newer_one_listed() -> None:
    nodes: Registry[str, str] = Registry()
    old, new = nodes.entry("n1", "actor"), nodes.entry("n1", "actor")
    nodes.add(old)
    nodes.add(new)
    nodes.remove(old)
    assert "n1" in nodes
    nodes.remove(new)
    assert "n1" not in nodes


def test_when_the_newer_actor_ends_first_the_older_one_does_not_come_back() -> None:
    nodes: Registry[str, str] = Registry()
    old, new = nodes.entry("n1", "old"), nodes.entry("n1", "new")
    nodes.add(old)
    nodes.add(new)
    nodes.remove(new)
    assert nodes.find("n1") is None
    nodes.remove(old)
    assert nodes.find("n1") is None


def test_removing_twice_does_nothing() -> None:
    nodes: Registry[str, str] = Registry()
    entry = nodes.entry("n1", "actor")
    nodes.add(entry)
    nodes.remove(entry)
    nodes.remove(entry)
    assert len(nodes) == 0


def test_iterating_is_a_snapshot_that_survives_changes() -> None:
    nodes: Registry[int, int] = Registry()
    entries = [nodes.entry(key, key * 10) for key in range(3)]
    for entry in entries:
        nodes.add(entry)
    seen = []
    for actor in nodes:
        seen.append(actor)
        nodes.remove(entries[2])
    assert seen == [0, 10, 20]
    assert list(nodes) == [0, 10]


def test_items_are_the_actors_with_their_names_as_of_now() -> None:
    nodes: Registry[str, str] = Registry()
    for name in ("n1", "n2"):
        nodes.add(nodes.entry(name, f"actor of {name}"))
    items = nodes.items()
    nodes.add(nodes.entry("n3", "actor of n3"))
    assert items == [("n1", "actor of n1"), ("n2", "actor of n2")]
