"""All routes of echo spaces but rooms, as one feature. The supervised task that ends spaces on time starts with it."""

import sys
from collections.abc import Callable

from actors.space.space_files import SpaceFiles
from actors.space.space_values import SpaceValues
from actors.space.spaces import EchoSpaces
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.main.feature import Feature
from gateway.net.router import Route
from gateway.spaces.admission import SpaceAdmission
from gateway.spaces.creation import CREATION_PATH, Creation
from gateway.spaces.documents import Documents
from gateway.spaces.file_routes import FileRoutes
from gateway.spaces.kv_routes import KvRoutes
from gateway.spaces.settings import EchoSettings
from gateway.spaces.space_routes import PREFIX, Methods, SpaceRoutes
from gateway.spaces.text_routes import TextRoutes


def spaces_feature(
    spaces: EchoSpaces,
    admission: SpaceAdmission,
    settings: EchoSettings,
    base: Callable[[], str],
    new_id: Callable[[], str],
) -> Feature:
    """`base` is how clients reach this gateway, without a slash at its end; it is asked once the gateway listens."""
    documents = Documents(settings, base)
    kv, files = KvRoutes(SpaceValues(spaces), settings), FileRoutes(SpaceFiles(spaces, new_id), settings, base)
    more: dict[tuple[str, bool], Methods] = {
        ("files", False): {"GET": files.list, "POST": files.upload},
        ("files", True): {"GET": files.download, "DELETE": files.delete},
    }
    routes: dict[str, Route] = {
        **Creation(spaces, admission, documents, settings, base).routes,
        **SpaceRoutes(spaces, admission, kv, documents, settings, more).routes,
        **TextRoutes(admission, documents).routes,
    }

    def start(supervisor: Supervisor) -> None:
        supervisor.start(ChildSpec(name="space_store", run=spaces.store.watch, kind=Kind.FATAL, stage=Stage.LOG))
        supervisor.start(ChildSpec(name="spaces", run=spaces.run, kind=Kind.PERMANENT, stage=Stage.CORE))

    return Feature(routes, start)


def body_bytes_max_with_spaces(otherwise: Callable[[str], int]) -> Callable[[str], int]:
    """For the door: the routes of spaces count bodies themselves as they come, so that a refusal has their own form."""

    def body_bytes_max(path: str) -> int:
        return sys.maxsize if path.startswith(PREFIX) or path == CREATION_PATH else otherwise(path)

    return body_bytes_max
