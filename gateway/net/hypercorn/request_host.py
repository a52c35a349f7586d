"""Whom a request is for that hypercorn has read: what the door looks at in a head, and hypercorn takes as it comes.

hypercorn passes on any Host or `:authority`, and over HTTP/1.1 a target that is a whole URL as if it were a path. That
`Host` and `:authority` are one, and that neither is there twice, h2 and h11 see to: they end the connection.
"""

from urllib.parse import unquote

from gateway.net.applications import Application, Applications
from gateway.net.asgi import AsgiScope
from gateway.net.authority_rules import is_authority, of_absolute_form


def application_of(scope: AsgiScope, applications: Applications) -> Application | None:
    """Whose request it is; from now on its target is a path, and its Host that of the target. None: 400."""
    hosts = [value for name, value in scope["headers"] if name == b"host"]
    if len(hosts) > 1 or not all(map(is_authority, hosts)):
        return None
    raw_path: bytes = scope["raw_path"]
    if b"#" in raw_path or b"#" in scope["query_string"]:
        return None
    if not raw_path.startswith(b"/") and not (raw_path == b"*" and scope.get("method") == "OPTIONS"):
        absolute = None if scope["http_version"] == "2" else of_absolute_form(raw_path)
        if absolute is None:
            return None
        host, raw_path = absolute
        hosts = [host]
        scope["headers"] = [*(field for field in scope["headers"] if field[0] != b"host"), (b"host", host)]
        scope["raw_path"], scope["path"] = raw_path, unquote(raw_path.decode("ascii"))
    return applications.at(hosts[0] if hosts else None)
