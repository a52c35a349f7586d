"""What Web Push of projects is for, as the OpenAPI document has it. That of spaces is with the routes of spaces."""

from functools import partial

from gateway.net.error_forms import ECHO
from gateway.net.operation import JSON, Answer, Credential, Operation, Operations
from schemas.echo.room_tools import ROOM_TOOLS

_PUSH = "/api/projects/{project_id}/push"
_push = partial(Operation, tag="Web Push", form=ECHO, names={"project_id": {"type": "string"}})
_SUBSCRIBE, _UNSUBSCRIBE, _NOTIFY, _VAPID = (
    ROOM_TOOLS[f"echo_push_{name}"] for name in ("subscribe", "unsubscribe", "notify", "vapid_public")
)

PROJECT_PUSH: Operations = {
    f"GET {_PUSH}/vapid-public": _push(
        summary="Read the key that browsers subscribe with.",
        answers={200: Answer("The key.", _VAPID.answer)},
        refuses=(404,),
    ),
    f"POST {_PUSH}/subscribe": _push(
        summary="Subscribe a browser.",
        body={JSON: _SUBSCRIBE.body()},
        answers={200: Answer("Subscribed before.", _SUBSCRIBE.answer), 201: Answer("Subscribed.", _SUBSCRIBE.answer)},
        refuses=(404, 415),
    ),
    f"POST {_PUSH}/unsubscribe": _push(
        summary="Unsubscribe a browser.",
        body={JSON: _UNSUBSCRIBE.body()},
        answers={200: Answer("Whether it was subscribed.", _UNSUBSCRIBE.answer)},
        refuses=(404, 415),
    ),
    f"POST {_PUSH}/notify": _push(
        summary="Notify subscribed browsers.",
        credentials=(Credential("project"),),
        body={JSON: _NOTIFY.body()},
        answers={200: Answer("How many were reached.", _NOTIFY.answer)},
        refuses=(401, 404, 415),
    ),
}
