"""Operators' routes as the OpenAPI document has them: what each route says of itself, under its own path."""

from http import HTTPStatus

from gateway.api.actions import OperatorRoute, OperatorRoutes
from gateway.api.operations import OPERATOR
from gateway.net.error_forms import DEVICE
from gateway.net.operation import JSON, NOTHING, Answer, Credential, Operation, Operations


def operations_of(routes: OperatorRoutes) -> Operations:
    return {
        f"{route.method} {path.replace('{}', '{' + route.about.name + '}')}": _operation(route)
        for path, route in routes.items()
    }


def _operation(route: OperatorRoute) -> Operation:
    about = route.about
    if route.method == "DELETE":
        answers = {int(HTTPStatus.NO_CONTENT): NOTHING}
    else:
        answers = {int(HTTPStatus.OK): Answer("What was asked for.", about.answer, route.media_type)}
    scopes = [] if route.scope is None else [scope.value for scope in (route.scope, *route.also)]
    # 500: the log or the disk did not take it, or give it.
    return Operation(
        summary=about.summary,
        text=about.text,
        tag="Operators",
        form=DEVICE,
        answers=answers,
        refuses=(401, 403, 500, *about.refuses),
        credentials=(Credential(OPERATOR, scopes),),
        names={about.name: about.of_name},
        query=about.query,
        body={} if route.shape is None else {JSON: route.shape},
    )
