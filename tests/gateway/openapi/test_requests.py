"""Every operation of the document under requests that are made of it, good and bad, against a live gateway.

Each answer has to be one that the document has: its status, its media type, its body; and never 500. The requests are
the same in every run. `make hostile` asks more.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from gateway.identity.members import join_routes
from gateway.identity.oauth import authorize_routes
from gateway.spaces import iam_ceremonies
from tests.gateway.openapi.documented import Described, Judge, operations
from tests.gateway.openapi.requests import Asked, requests_of
from tests.gateway.openapi.served import EVERYTHING, Served, served

EXAMPLES = int(os.environ.get("OPENAPI_EXAMPLES", "12"))


_BOUNDED = settings(
    max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("gateway"), **EVERYTHING) as one:
        one.document = one.ask("GET", "/openapi.json").json
        yield one


@pytest.fixture(scope="module")
def judge(gateway: Served) -> Judge:
    return Judge(gateway.document)


def test_cookies_have_the_names_that_are_documented(gateway: Served) -> None:
    named = {one["name"] for one in gateway.document["components"]["securitySchemes"].values() if "name" in one}
    session = gateway.session(gateway.operator()).partition("=")[0]
    assert named == {session, iam_ceremonies.COOKIE, join_routes.COOKIE, authorize_routes.COOKIE}


def test_every_operation_answers_as_the_document_says(gateway: Served, judge: Judge) -> None:
    faults: list[str] = []
    for one in operations(gateway.document):
        faults += _faults(one, gateway, judge)
    assert not faults, "\n".join(faults)


def _faults(one: Described, gateway: Served, judge: Judge) -> list[str]:
    names, credentials = gateway.names(), gateway.credentials()
    credentials["claim"] = {"Authorization": f"Bearer {names['claim']}"}
    headers = credentials[one.schemes()[0]] if one.schemes() else {}
    if one.method != "GET":
        headers = {**headers, "Origin": gateway.origin}
    found: dict[str, str] = {}

    @_BOUNDED
    @given(asked=requests_of(one, names, headers))
    def ask(asked: Asked) -> None:
        answer = gateway.ask(asked.method, asked.target, asked.headers, asked.body)
        for fault in judge.faults(one, answer):
            found.setdefault(fault, f"{one.id}: {fault}: {asked} {(answer.body or b'')[:300]!r}")

    ask()
    return list(found.values())
