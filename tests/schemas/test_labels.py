"""Names and tags: what an operator may call a node."""

import pytest

from schemas.contract import contract
from schemas.labels import TAGS_MAX, Labels, is_name, is_tag, tags_of

NODE_ID = "01hzx3k8q2v7n4t9r6w5y1c0ba"


@pytest.mark.parametrize(
    "name", ["a", "7", "pump-7", "a--b", "x" * 63, NODE_ID[:25], NODE_ID[:25] + "i", "a-" * 13 + "b"]
)
def test_names_that_may_be(name: str) -> None:
    assert is_name(name)
    assert contract("node.labels@1.0.0").is_valid({"name": name})


@pytest.mark.parametrize(
    "name", ["", "-a", "a-", "-", "x" * 64, "Pump", "a.b", "a_b", "pömp", "a b", "a\n", NODE_ID, "a/b", "tag:a"]
)
def test_names_that_may_not_be(name: str) -> None:
    assert not is_name(name)


@pytest.mark.parametrize("tag", ["site=lab", "a=b", "floor_2=North.1", "k" * 63 + "=" + "v" * 63, "rev=1.2.3-rc_1"])
def test_tags_that_may_be(tag: str) -> None:
    assert is_tag(tag)


@pytest.mark.parametrize(
    "tag",
    [
        "",
        "site",
        "=",
        "site=",
        "=lab",
        "Site=lab",
        "site=a=b",
        "site=a b",
        "_s=a",
        "-s=a",
        "s" * 64 + "=a",
        "s=" + "a" * 64,
    ],
)
def test_tags_that_may_not_be(tag: str) -> None:
    assert not is_tag(tag)


def test_tags_of_texts() -> None:
    assert tags_of([]) == {}
    assert tags_of(["site=lab", "row=2"]) == {"site": "lab", "row": "2"}
    assert tags_of(["site=lab", "site=office"]) is None
    assert tags_of(["site"]) is None
    assert tags_of([f"k{n}=v" for n in range(TAGS_MAX)]) is not None
    assert tags_of([f"k{n}=v" for n in range(TAGS_MAX + 1)]) is None


def test_tag_texts_are_in_the_order_of_their_keys() -> None:
    assert Labels("a", {"z": "1", "b": "2"}).tag_texts == ("b=2", "z=1")
