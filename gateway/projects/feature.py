"""The project API as one feature. Other parts extend it before the gateway listens.

    made = ProjectsFeature(…)
    made.table.add({"static": …})       # routes below `/api/projects/:id/`, see `project_routes.py`
    made.more.update({"/upload/*": …})  # routes of their own, with CORS, whose bodies are counted by themselves
    made.kinds.append(…)                # kinds of sessions on `/mcp`; asked before those of rooms
    made.starts.append(…)               # what runs for as long as the gateway does

`feature` is read after that, once.
"""

from collections.abc import Callable

from actors.supervision.supervisor import Supervisor
from gateway.main.feature import Feature
from gateway.main.session_kind import SessionKind
from gateway.net.cors import CORS
from gateway.net.echo_refusal import ERROR_OF_STATUS, say
from gateway.net.operation import chosen
from gateway.net.refusal_counts import counted
from gateway.net.refusal_form import RefusalForm, Refused
from gateway.net.router import Route
from gateway.projects.bearer import ProjectBearer
from gateway.projects.iam_service import IamService
from gateway.projects.operations import PROJECTS, UPLOADS
from gateway.projects.operator_routes import OperatorRoutes
from gateway.projects.project_routes import PATH, AdmitAddress, ProjectRoutes
from gateway.projects.project_service import ProjectService


class ProjectsFeature:
    def __init__(
        self,
        service: ProjectService,
        iam: IamService,
        bearer: ProjectBearer,
        admit_address: AdmitAddress,
        body_bytes_max: int,
        list_max: int,
        refused: dict[str, int],
    ) -> None:
        """`refused` counts refusals by their word."""
        self.service = service
        self.bearer = bearer
        operator = OperatorRoutes(service, iam, body_bytes_max, list_max)
        self.table = ProjectRoutes(bearer, admit_address, operator.of_all)
        self.table.add(operator.table)
        self.more: dict[str, Route] = {}
        self.kinds: list[SessionKind] = []
        self.starts: list[Callable[[Supervisor], None]] = []
        self._refused = refused

    @property
    def feature(self) -> Feature:
        return Feature(
            counted({**self.table.routes, **self.more}, self._refused),
            operations=chosen([*self.table.endpoints, *(UPLOADS if self.more else ())], PROJECTS),
            start=self._start,
            refusal_form=self._form_at,
            counts_bodies=lambda path: path == PATH or path.startswith(f"{PATH}/") or self._is_more(path),
            session_kinds=tuple(self.kinds),
        )

    def _start(self, supervisor: Supervisor) -> None:
        for start in self.starts:
            start(supervisor)

    def _form_at(self, path: str) -> RefusalForm | None:
        """Of what is below `/api/`, echo spaces say it."""
        return self._say if self._is_more(path) else None

    def _say(self, status: int, correlation_id: str) -> Refused:
        self._refused[ERROR_OF_STATUS[status].word] += 1
        return say(status, correlation_id, tuple(CORS.items()))

    def _is_more(self, path: str) -> bool:
        return path.startswith(tuple(route.partition("*")[0] for route in self.more))
