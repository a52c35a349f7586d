"""The OpenAPI 3.1 document of one address: what its features serve there, in their own words. Pure.

Shapes that msgspec knows and published schemas become components; nothing of a schema is written here a second time.
"""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, TypeAlias

import msgspec

from gateway.net.operation import (
    JSON,
    Answer,
    Credential,
    ErrorForm,
    Operation,
    Operations,
    Published,
    Schema,
    names_in,
)
from schemas.registry import REGISTRY

Json: TypeAlias = dict[str, Any]

_COMPONENTS = "#/components/schemas/"
_ANY = {"type": "string"}
_COOKIE = "cookie"
_BINDS = "Binds a passkey ceremony to its browser. Only the gateway's own pages have it."
SCHEMES: Mapping[str, Json] = {
    "agent": {"type": "http", "scheme": "bearer", "description": "A token of class `agent_runtime`."},
    "operator": {"type": "http", "scheme": "bearer", "description": "A token of class `operator`, with these scopes."},
    "room": {
        "type": "http",
        "scheme": "bearer",
        "description": "An access token of a space with IAM, with these scopes or `echo.full`. Other spaces take none: "
        "the token in the path is all that is needed.",
    },
    "claim": {"type": "http", "scheme": "bearer", "description": "The claim that the space's creator was told."},
    "project": {"type": "http", "scheme": "bearer", "description": "The bearer of the project API."},
    "session": {
        "type": "apiKey",
        "in": _COOKIE,
        "name": "__Host-heliograph_console",
        "description": "A session of the console.",
    },
    **{
        scheme: {"type": "apiKey", "in": _COOKIE, "name": name, "description": _BINDS}
        for scheme, name in {
            "passkey_of_space": "__Host-echo_passkey",
            "passkey_of_join": "__Host-join",
            "passkey_of_sign_in": "__Host-oauth",
        }.items()
    },
}
_HEADERS: Mapping[int, Mapping[str, str]] = {
    401: {"WWW-Authenticate": "What to ask with."},
    429: {"Retry-After": "Seconds to wait, where that is known."},
}
_CORRELATION = "The id under which the log has the reason."


class _Components:
    """Schemas by name, each once."""

    def __init__(self) -> None:
        self.schemas: Json = {}
        self._types: dict[str, type[Any]] = {}

    def of(self, schema: Schema) -> Json:
        if isinstance(schema, Published):
            return self._of_registry(schema.schema_id)
        if isinstance(schema, Mapping):
            return dict(schema)
        (found,), parts = msgspec.json.schema_components([schema], ref_template=_COMPONENTS + "{name}")
        name = getattr(schema, "__name__", "")
        if self._types.setdefault(name, schema) is not schema:
            raise ValueError(f"two shapes have the name {name}")
        self.schemas.update(parts)
        return found

    def _of_registry(self, schema_id: str) -> Json:
        name = schema_id.replace("@", "-")
        if name not in self.schemas:
            document = dict(REGISTRY[schema_id].document)
            own = {key: value for key, value in document.items() if key not in ("$schema", "$id")}
            self.schemas[name] = _moved(own, _COMPONENTS + name)
        return {"$ref": _COMPONENTS + name}


def _moved(value: Any, to: str) -> Any:
    """References to places of its own, where it is now."""
    if isinstance(value, Mapping):
        return {
            key: to + inner[1:] if key == "$ref" and str(inner).startswith("#/") else _moved(inner, to)
            for key, inner in value.items()
        }
    return [_moved(inner, to) for inner in value] if isinstance(value, list) else value


class _Document:
    def __init__(self) -> None:
        self.components = _Components()
        self.responses: Json = {}
        self.schemes: Json = {}

    def operation(self, name: str, operation: Operation) -> Json:
        method, _, path = name.partition(" ")
        parameters = [
            *(_parameter("path", place, self.components.of(operation.names[place])) for place in names_in(path)),
            *(_parameter("query", key, self.components.of(schema)) for key, schema in operation.query.items()),
            *(_parameter("header", key, self.components.of(schema)) for key, schema in operation.headers.items()),
        ]
        answers = {str(status): self._answer(answer) for status, answer in operation.answers.items()}
        refusals = {
            str(status): self._refusal(operation.form, status)
            for status in sorted(
                {*operation.form.always, *operation.refuses, *_of_names(path)} - operation.answers.keys()
            )
        }
        body = {
            media_type: {} if schema is None else {"schema": self.components.of(schema)}
            for media_type, schema in operation.body.items()
        }
        return {
            "operationId": _operation_id(method, path),
            "tags": [operation.tag],
            "summary": operation.summary,
            **({"description": operation.text} if operation.text else {}),
            **({"parameters": parameters} if parameters else {}),
            **({"requestBody": {"required": not operation.body_is_optional, "content": body}} if body else {}),
            "security": [self._security(credential) for credential in operation.credentials] or [{}],
            "responses": answers | refusals,
        }

    def _security(self, credential: Credential) -> Json:
        if not credential.scheme:
            return {}
        self.schemes[credential.scheme] = SCHEMES[credential.scheme]
        return {credential.scheme: list(credential.scopes)}

    def _answer(self, answer: Answer) -> Json:
        kinds = {} if answer.media_type is None else {answer.media_type: answer.schema}
        content = {
            media_type: {} if schema is None else {"schema": self.components.of(schema)}
            for media_type, schema in {**kinds, **answer.also}.items()
        }
        headers = {name: {"description": text, "schema": _ANY} for name, text in answer.headers.items()}
        return {
            "description": answer.text,
            **({"headers": headers} if headers else {}),
            **({"content": content} if content else {}),
        }

    def _refusal(self, form: ErrorForm, status: int) -> Json:
        name = f"{form.name}-{status}"
        if name not in self.responses:
            words = form.words.get(status, ())
            schema = self.components.of(form.schema)
            if words:
                schema = {"allOf": [schema, {"properties": {form.member: {"enum": list(words)}}}]}
            headers = {"X-Correlation-Id": _CORRELATION, **_HEADERS.get(status, {})}
            self.responses[name] = {
                "description": f"{HTTPStatus(status).phrase}: {', '.join(f'`{word}`' for word in words)}."
                if words
                else f"{HTTPStatus(status).phrase}.",
                "headers": {key: {"description": text, "schema": _ANY} for key, text in headers.items()},
                "content": {JSON: {"schema": schema}, **{kind: {} for kind in form.also}},
            }
        return {"$ref": f"#/components/responses/{name}"}


def _parameter(place: str, name: str, schema: Json) -> Json:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def _of_names(path: str) -> list[int]:
    """A slash in a name's place, percent-encoded, is no route's."""
    return [404] if names_in(path) else []


def _operation_id(method: str, path: str) -> str:
    """Such as `get_devices_node_id_manifest`."""
    return "_".join([method.lower(), *("".join(c if c.isalnum() else " " for c in path).split() or ["root"])])


def document(title: str, version: str, server: str, text: str, operations: Operations) -> Json:
    """`server` says which address of the gateway this is."""
    made, paths = _Document(), dict[str, Json]()
    for name in sorted(operations, key=lambda name: name.partition(" ")[2]):
        method, _, path = name.partition(" ")
        plain = path.replace("*}", "}")
        paths.setdefault(plain, {})[method.lower()] = made.operation(name, operations[name])
    tags = sorted({operation.tag for operation in operations.values()})
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": version,
            "description": text,
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": server}],
        "tags": [{"name": tag} for tag in tags],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(made.components.schemas.items())),
            "responses": dict(sorted(made.responses.items())),
            "securitySchemes": dict(sorted(made.schemes.items())),
        },
    }


def joined(parts: Iterable[Operations]) -> Operations:
    """Raises ValueError where two describe the same."""
    together: dict[str, Operation] = {}
    for name, operation in (item for operations in parts for item in operations.items()):
        if name in together:
            raise ValueError(f"two features describe {name}")
        together[name] = operation
    return together
