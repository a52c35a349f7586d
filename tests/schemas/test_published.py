"""What is published stays: every id has the bytes it was first given, and every file is the schema it claims to be."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from schemas.contract import Contract, contract
from schemas.ecma import compile_ecma
from schemas.errors import Code
from schemas.registry import REGISTRY, URI_PREFIX, Schema
from tests.schemas.examples import EXAMPLES

# id → blake3-256 of its file. Never edit a row: a changed contract is a new version under a new id.
PUBLISHED = {
    "error@1.0.0": "b2fec9dddd6a8604022c555e5a01703f8e9869241f1833403b46f733750beaef",
    "error@1.1.0": "d376db497142e26e4ec6a2f0a4d2590ab601fbcba0bc9505bae3badaaf95514f",
    "error@1.2.0": "df4fdba949d08457a77684abf66465efe7495136347fc2393cb4677677a8098c",
    "fleet.find.input@1.0.0": "f5c758235241ed58b1be6f7543cf491bee435ca85e1cd646c89a4b81ec2cc6a8",
    "fleet.find.output@1.0.0": "e8704e0a9cdfe2856e773cab34e8b195d9975dd5ab7cc358656acb0033f8864f",
    "fleet.node.input@1.0.0": "64fd400f453b892a2dec9fb5c7ca7cf4d6c849b2da77565e08dfd222f392549f",
    "fleet.node.output@1.0.0": "bb3ff08c30d62b5de35ec6b20957850004a8bda3d6e4902e9be859187f8a929c",
    "manifest@1.0.0": "21ea3164f1659b2fa4d9833a04d7622c3f63d2632467aea715ea0d902d10e616",
    "manifest@1.1.0": "21ea3164f1659b2fa4d9833a04d7622c3f63d2632467aea715ea0d902d10e616",
    "node.labels@1.0.0": "9386562caacc656a93d23e00ac39c497388a9091ca8b138afe442c24237e8e40",
    "node.renew.answer@1.0.0": "6a892923cc881f8dd88ce07822f518e9211a01a46d762db7eefa86a37a3d9400",
    "node.renew.request@1.0.0": "134447e1ba757ecad72d5308d6e95670eb04ccfed8a1a0ae1d591d0a202d6bc6",
    "node.wire.announce@2.2.0": "239911fa140badfea420bf0ab42178c3892bdbd815fbcd595fd636858845eb42",
    "node.wire.announce_ack@2.2.0": "fd7bbd0a2d94eb4b8ca6de6efb461a2f6766bfca254d5603a13dd4fd8a523535",
    "node.wire.auth@2.2.0": "58def35c0923fc8c289917f710140499391efdf067b4204861fac03b1abc2784",
    "node.wire.auth_ok@2.2.0": "21b68728631031f4a5d9349d5a2571ff615b19b58fc6495e0675a44827400bef",
    "node.wire.cmd@2.2.0": "234f173e5dd2f8187e2000aa9dfed7e38f6a076bf6dc08fd41a1aafa5db4eec3",
    "node.wire.cmd_ack@2.2.0": "f327b980856c34956d150761e77d2a10d46bb7fa335ee364460a088760187720",
    "node.wire.cmd_cancel@2.2.0": "9f2c7aae4d37582a9e45f3ca95efe5095761974a810087456b14f36f0db167b3",
    "node.wire.envelope@2.2.0": "884a8f20c5804ff947ce68304ded5f9223ca9978bbbf3303078ccc426fca9282",
    "node.wire.error@2.2.0": "5f3644f63f5714818befd4c8d4626151c0542291a89e68e4781c54faecddc215",
    "node.wire.heartbeat@2.2.0": "145d103ae4942635afdf2959154e3cb12c31298cf27504a047a5c3eaf5c5e05b",
    "node.wire.heartbeat_ack@2.2.0": "df963fd2cd62ac9d25d3dbd19ce71b92c6fe6b196e26e7a47aacd3faf710cc90",
    "node.wire.resume@2.2.0": "17fd460b1aea9ebd75230d6c0843cfb2bbb90dfd1da9aa8d3d14228a0367d845",
    "node.wire.resume_ok@2.2.0": "2a0cff5ebae102447699f499ff25bf1792bb737351e1835c062517e7df41b5a9",
    "node.wire.telemetry@2.2.0": "b8d9ce18124dc2b4f6b1aedbecc19d5ed8d8eded2a9883c25350c5848e62f633",
    "system.echo.invoke.input@1.0.0": "a032f7d036f2d22048a746fad1dd5eb1b8312df90f786293fcb0bb2c61220ff5",
    "system.echo.invoke.output@1.0.0": "bc290232389e48df633fe9e91b8192fce9b745c00a1cb61b3f3dbee903249cbc",
    "system.metrics.sample@1.0.0": "fd6a7d1a0aa6407ea362f3814531f32bfd802cd8594fff035db4e09de55f6cf3",
    "system.metrics.snapshot.input@1.0.0": "2d141e756ae2fb5249cd7e4341360036416fb1ffe16f58d5f30bdaccf40c8335",
    "system.metrics.subscribe.close@1.0.0": "dde3ad74516cb939bf9e33c8b1b2151bed44660d05e073c26b93d00cea7779f7",
    "system.metrics.subscribe.frame@1.0.0": "6891ebc19a6d1e1df166960689727b9ad62a957d5398f90ceb050a5347d8f1c9",
    "system.metrics.subscribe.input@1.0.0": "b06fd03f61842f3b632379309e09e2720fa912fb38107e522ced7c69449fee23",
    "system.metrics@1.0.0": "12c0ed07a58a9908b36e54c5b7f9d16e53de6b73968f611feb8223aa6098405d",
}
ALL = pytest.mark.parametrize("schema", list(REGISTRY), ids=lambda schema: schema.id)


def test_every_id_still_has_the_content_it_was_published_with() -> None:
    assert {schema.id: schema.content_hash for schema in REGISTRY} == PUBLISHED


def test_listing_is_ordered_by_id() -> None:
    ids = [schema.id for schema in REGISTRY]
    assert ids == sorted(ids)


@ALL
def test_file_is_a_valid_draft_2020_12_schema(schema: Schema) -> None:
    jsonschema.Draft202012Validator.check_schema(dict(schema.document))


@ALL
def test_file_is_named_by_its_id(schema: Schema) -> None:
    expected = "manifest@1.0.0" if schema.id == "manifest@1.1.0" else schema.id
    assert schema.document["$id"] == URI_PREFIX + expected
    assert json.loads(schema.body) == schema.document


@ALL
def test_lookup_works_with_and_without_the_scheme(schema: Schema) -> None:
    assert REGISTRY.get(schema.id) is schema
    assert REGISTRY.get(schema.uri) is schema
    assert REGISTRY[schema.uri] is schema


def test_unknown_id_is_no_schema() -> None:
    assert REGISTRY.get("system.echo.invoke.input@9.9.9") is None
    assert REGISTRY.get("https://example.com/schema") is None
    assert REGISTRY.get("error@1.0.0mcp://schemas/") is None


def test_manifest_is_one_schema_under_both_of_its_ids() -> None:
    assert REGISTRY["manifest@1.0.0"].body == REGISTRY["manifest@1.1.0"].body
    assert REGISTRY["manifest@1.1.0"].document["properties"]["manifest_version"]["const"] == "1.1.0"


def _walk(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _walk(item)


@ALL
def test_every_reference_stays_within_the_published_files(schema: Schema) -> None:
    for node in _walk(dict(schema.document)):
        if isinstance(reference := node.get("$ref"), str):
            assert reference.startswith("#/$defs/") or REGISTRY.get(reference) is not None


@ALL
def test_every_pattern_has_one_meaning_in_both_dialects(schema: Schema) -> None:
    for node in _walk(dict(schema.document)):
        if isinstance(pattern := node.get("pattern"), str):
            compile_ecma(pattern)


def test_foreign_reference_is_refused_at_load_without_any_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        with pytest.raises(ValueError, match="Retrieval is disabled"):
            Contract({"$ref": address})
        with pytest.raises(BlockingIOError):
            listener.accept()


@ALL
def test_examples_are_valid_in_both_validators(schema: Schema) -> None:
    for example in EXAMPLES[schema.id]:
        assert contract(schema.id).is_valid(example)
        assert contract(schema.id).explain(example) == []


def test_subscribe_input_is_the_one_of_rfc_0009() -> None:
    subscribe = contract("system.metrics.subscribe.input@1.0.0")
    assert subscribe.is_valid({})
    assert not subscribe.is_valid({"interval_ms": 1000, "include": ["cpu"]})
    for interval_ms, valid in ((999, False), (1000, True), (60000, True), (60001, False)):
        assert subscribe.is_valid({"interval_ms": interval_ms}) is valid
    assert subscribe.is_valid({"interval_ms": 5000})
    assert REGISTRY["system.metrics.subscribe.input@1.0.0"].document["properties"]["interval_ms"]["default"] == 5000


def test_bad_request_exists_only_since_error_1_1_0() -> None:
    old, new = (set(REGISTRY[f"error@{v}"].document["properties"]["code"]["enum"]) for v in ("1.0.0", "1.1.0"))
    assert new - old == {"E_BAD_REQUEST"}
    assert old < new
    assert {code.value for code in Code} == new


def test_error_1_2_0_is_1_1_0_with_details() -> None:
    old, new = (dict(REGISTRY[f"error@{version}"].document) for version in ("1.1.0", "1.2.0"))
    properties = dict(new.pop("properties"))
    assert "details" not in new["required"]
    assert properties.pop("details")["type"] == "object"
    assert properties == old.pop("properties")
    assert {**new, "$id": None} == {**old, "$id": None}


def test_kind_schema_of_metrics_covers_all_of_its_parts() -> None:
    parts = {entry["$ref"] for entry in REGISTRY["system.metrics@1.0.0"].document["anyOf"]}
    assert parts == {
        f"{URI_PREFIX}system.metrics.{part}@1.0.0"
        for part in ("snapshot.input", "subscribe.input", "sample", "subscribe.frame")
    }
