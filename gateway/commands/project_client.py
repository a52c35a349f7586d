"""The project API of an echo service over HTTP: any instance, with its bearer. What answers mean is for the commands.

A service is not trusted: its answers are bounded (`space_client.py`), and what is printed of them is checked first.
"""

import http.client
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from socket import SHUT_RDWR
from typing import Any
from urllib.parse import quote

from gateway.commands.project_file import is_project_id
from gateway.commands.space_client import Body, EchoService
from gateway.commands.space_response import BoundedResponse
from schemas.echo.site_paths import quoted_path

_PAGE = 200  # entries of a list at a time


class ProjectApi:
    def __init__(self, service: EchoService, bearer: str) -> None:
        self.service = service
        self._headers: Mapping[str, str] = {"authorization": f"Bearer {bearer}"}

    def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._project(self.service.ask("POST", "/api/projects", body, wants="project_id", headers=self._headers))

    def project(self, project_id: str) -> dict[str, Any]:
        return self._project(self.service.ask("GET", _at(project_id), wants="project_id", headers=self._headers))

    def book(self, project_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        path = f"{_at(project_id)}/book"
        return self._project(self.service.ask("POST", path, body, wants="project_id", headers=self._headers))

    def projects(self) -> Iterator[dict[str, Any]]:
        yield from self.service.listed(f"/api/projects?limit={_PAGE}", "projects", self._headers)

    def delete(self, project_id: str) -> None:
        self.service.order("DELETE", _at(project_id), self._headers)

    def _project(self, document: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(document["project_id"], str) or not is_project_id(document["project_id"]):
            raise self.service.is_no_service(200)
        return document

    # ---- files -------------------------------------------------------------------------------------------------------

    def objects(self, project_id: str, prefix: str = "") -> Iterator[dict[str, Any]]:
        path = f"{_at(project_id)}/static?prefix={quote(prefix, safe='')}&limit={_PAGE}"
        yield from self.service.listed(path, "objects", self._headers)

    def put(self, project_id: str, path: str, body: Body, size: int) -> dict[str, Any]:
        """Without a type: the service knows by the path, and better than this machine."""
        headers = {**self._headers, "content-length": str(size)}
        target = f"{_at(project_id)}/static/{quoted_path(path)}"
        with self.service.open("PUT", target, body, headers) as response:
            return self.service.document(response, "sha256")

    def unpublish(self, project_id: str, path: str) -> None:
        self.service.order("DELETE", f"{_at(project_id)}/static/{quoted_path(path)}", self._headers)


def _at(project_id: str) -> str:
    return f"/api/projects/{project_id}"


class KeptService(EchoService):
    """One that uses its connection again, for requests one after the other."""

    def __init__(self, base: str, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(base, tls)
        self._kept: http.client.HTTPConnection | None = None
        self._answer: BoundedResponse | None = None

    def stop(self) -> None:
        """For another thread: what is under way fails at once."""
        sock = None if self._kept is None else self._kept.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(SHUT_RDWR)

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()

    @contextmanager
    def _lent(self) -> Iterator[http.client.HTTPConnection]:
        connection = self._kept = self._kept or self.connection()
        self._answer = None
        try:
            yield connection
        finally:
            # One whose answer was not read to its end is of no more use; it opens again by itself.
            if self._answer is None or not self._answer.isclosed():
                connection.close()

    def _response(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Body, headers: Mapping[str, str]
    ) -> BoundedResponse:
        self._answer = super()._response(connection, method, path, body, headers)
        return self._answer
