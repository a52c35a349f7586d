"""The operator of the measurements: with a token, and signed in to the console; and requests for readers to send."""

import http.client
import json
from collections.abc import Mapping
from typing import Any

from bench.calls import LIVE_S_MAX, Gateway


class Operator:
    """With a token, and signed in to the console."""

    def __init__(self, port: int, token: str) -> None:
        self.port = port
        self._token = token
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=LIVE_S_MAX)
        link = self.admin("/admin/console/link", {})["url"]
        self.origin, _, secret = link.partition("/console#k=")
        self.cookie = ""
        response = self._post("/console/api/session", {"link": secret}, self._headers())
        self.cookie = response.headers["set-cookie"].partition(";")[0]

    def admin(self, path: str, body: Any) -> Any:
        return json.loads(self._post(path, body, {"Authorization": f"Bearer {self._token}"}).body)

    def live_nodes(self) -> int:
        """Without a look at the fleet's table."""
        self._http.close()  # many nodes take longer to dial in than a gateway waits for the next request
        self._http.request("GET", "/metrics", headers={"Authorization": f"Bearer {self._token}"})
        lines = self._http.getresponse().read().decode().splitlines()
        return next(int(float(line.split()[-1])) for line in lines if line.startswith("heliograph_nodes "))

    def fleet(self, query: dict[str, Any]) -> Any:
        return json.loads(self._post("/console/api/fleet", query, self._headers()).body)

    def _headers(self) -> dict[str, str]:
        return {"Origin": self.origin, "Cookie": self.cookie, "Content-Type": "application/json"}

    def _post(self, path: str, body: Any, headers: dict[str, str]) -> Any:
        self._http.request("POST", path, json.dumps(body), headers)
        response = self._http.getresponse()
        response.body = response.read()  # type: ignore[attr-defined]
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status} {response.body!r}")  # type: ignore[attr-defined]
        return response

    def live(self, fleet: dict[str, Any]) -> str:
        """The request of a live page."""
        return request_text("/console/api/live", {"fleet": fleet}, self._headers())


def request_text(path: str, body: Any, headers: Mapping[str, str]) -> str:
    data = json.dumps(body)
    fields = {"Host": "bench", **headers, "Content-Length": str(len(data))}
    return "\r\n".join([f"POST {path} HTTP/1.0", *(f"{name}: {value}" for name, value in fields.items()), "", data])


def stream_of(gateway: Gateway, node_id: str) -> str:
    body = {"tool": f"sys.{node_id}.metrics.subscribe", "arguments": {"interval_ms": 1000}}
    headers = {"Authorization": f"Bearer {gateway.token}", "Accept": "text/event-stream"}
    return request_text("/mcp/tools/call", body, headers)
