"""The `[[upstreams]]` of a policy file. docs/reference/policy.md has every key."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from gateway.governance.policy.shapes import Shapes
from gateway.governance.policy.toml_lines import Place
from gateway.governance.policy.upstream_rules import UpstreamRules, Value
from schemas.certificates import TENANT_CHARS_MAX
from schemas.projection import KIND_SHORTS

UPSTREAMS_MAX = 64
WORDS_MAX = 256  # of a command
CHARS_MAX = 4096  # of a word, an address or a value
VALUES_MAX = 64  # of an environment, or headers
TIMEOUT_S_MAX = 600

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,15}\Z")
_TENANT = re.compile(rf"[ -~]{{1,{TENANT_CHARS_MAX}}}\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}\Z")
_IN_A_HEADER = re.compile(r"[ -~]*\Z")
# Those that the protocol's own client writes, or that say where a message ends.
_OURS = frozenset(
    ["accept", "connection", "content-length", "content-type", "host", "last-event-id", "transfer-encoding"]
)


class UpstreamReader(Shapes):
    def upstreams(self, value: Any, place: Place) -> tuple[UpstreamRules, ...]:
        upstreams: dict[str, UpstreamRules] = {}
        for one, at in self._list(value, place):
            upstream = self._upstream(one, at)
            if upstream.name in upstreams:
                self._fail((*at, "name"), "two upstreams have this name", "give each a name of its own")
            upstreams[upstream.name] = upstream
        if len(upstreams) > UPSTREAMS_MAX:
            self._fail((*place, UPSTREAMS_MAX), f"a policy has at most {UPSTREAMS_MAX} upstreams", "remove some")
        return tuple(upstreams.values())

    def _upstream(self, value: Any, place: Place) -> UpstreamRules:
        by_command, by_url = ("command", "env", "cwd"), ("url", "headers")
        keys = ("name", "tenants", *by_command, *by_url, "read_only", "connect_timeout", "call_timeout")
        table = self._table(value, place, keys, needs=("name", "tenants"))
        if ("command" in table) == ("url" in table):
            self._fail(place, "an upstream has either a command or a url", "write one of the two")
        for key in by_url if "command" in table else by_command:
            if key in table:
                fix = f"remove {key}, or write {'url' if key in by_url else 'command'} instead"
                self._fail((*place, key), "this key does not go with how the upstream is reached", fix)
        readers: dict[str, tuple[str, Callable[[Any, Place], Any]]] = {
            "command": ("command", self._command),
            "env": ("env", self._environment),
            "cwd": ("cwd", self._text),
            "url": ("url", self._url),
            "headers": ("headers", self._headers),
            "read_only": ("read_only", lambda value, at: self._patterns(value, at, self._pattern)),
            "connect_timeout": ("connect_timeout_s", self._timeout_s),
            "call_timeout": ("call_timeout_s", self._timeout_s),
        }
        name = self._name(table["name"], (*place, "name"))
        tenants = self._tenants(table["tenants"], (*place, "tenants"))
        given = {name: read(table[key], (*place, key)) for key, (name, read) in readers.items() if key in table}
        return UpstreamRules(name, tenants, **given, line=self._line(place))

    def _name(self, value: Any, place: Place) -> str:
        if not isinstance(value, str) or not _NAME.match(value):
            words = "a name is 1 to 16 lower-case letters, digits, _ and -, and begins with a letter"
            self._fail(place, words, 'write such as "search"')
        if value in KIND_SHORTS:
            self._fail(place, "the tools of devices begin with this name", "choose another one")
        return value

    def _tenants(self, value: Any, place: Place) -> frozenset[str]:
        tenants = self._list(value, place)
        if not tenants:
            self._fail(place, "an upstream is for at least one tenant", "name one, or remove the upstream")
        for tenant, at in tenants:
            if not isinstance(tenant, str) or not _TENANT.match(tenant):
                self._fail(at, "no token has such a tenant", f"write 1 to {TENANT_CHARS_MAX} printable characters")
        return frozenset(tenant for tenant, _ in tenants)

    def _command(self, value: Any, place: Place) -> tuple[str, ...]:
        words = self._list(value, place)
        if not 1 <= len(words) <= WORDS_MAX:
            fix = 'write the program and its arguments, such as ["npx", "server"]'
            self._fail(place, f"a command has 1 to {WORDS_MAX} words", fix)
        return tuple(self._text(word, at) for word, at in words)

    def _url(self, value: Any, place: Place) -> str:
        text, fix = self._text(value, place), 'write such as "https://tools.example/mcp"'
        try:
            parts = urlsplit(text)
            host, user, _ = parts.hostname, parts.username, parts.port
        except ValueError:
            host, user, parts = None, None, urlsplit("")
        if parts.scheme not in ("http", "https") or not host or re.search(r"[^!-~]", text):
            self._fail(place, "this is no http or https address", fix)
        if user is not None or parts.fragment:
            self._fail(place, "an address has neither a user nor a fragment", "put credentials into headers")
        return text

    def _environment(self, value: Any, place: Place) -> tuple[tuple[str, Value], ...]:
        return self._values(value, place, lambda name, _: _VARIABLE.match(name) is not None)

    def _headers(self, value: Any, place: Place) -> tuple[tuple[str, Value], ...]:
        def is_possible(name: str, value: Value) -> bool:
            lower = name.lower()
            may = bool(_HEADER.match(name)) and lower not in _OURS and not lower.startswith("mcp-")
            return may and _IN_A_HEADER.match(value.text) is not None

        return self._values(value, place, is_possible)

    def _values(
        self, value: Any, place: Place, is_possible: Callable[[str, Value], bool]
    ) -> tuple[tuple[str, Value], ...]:
        if not isinstance(value, dict) or len(value) > VALUES_MAX:
            fix = 'write such as { NAME = "text", OTHER = { env = "VARIABLE" } }'
            self._fail(place, f"this is no table of at most {VALUES_MAX} values", fix)
        values = []
        for name, one in value.items():
            read = self._value(one, (*place, name))
            if not is_possible(name, read):
                self._fail((*place, name), "this name or value is not allowed here", "see docs/reference/policy.md")
            values.append((name, read))
        return tuple(values)

    def _value(self, value: Any, place: Place) -> Value:
        if not isinstance(value, dict):
            return Value(self._text(value, place))
        variable = self._table(value, place, ("env",), needs=("env",))["env"]
        if not isinstance(variable, str) or not _VARIABLE.match(variable):
            self._fail((*place, "env"), "this is no name of a variable", 'write such as { env = "TOOLS_TOKEN" }')
        return Value(variable=variable)

    def _text(self, value: Any, place: Place) -> str:
        if not isinstance(value, str) or not 1 <= len(value) <= CHARS_MAX or "\0" in value:
            self._fail(place, f"this is no text of 1 to {CHARS_MAX} characters", "put it in quotes")
        return value

    def _timeout_s(self, value: Any, place: Place) -> int:
        timeout_s = self._duration_s(value, place)
        if timeout_s > TIMEOUT_S_MAX:
            self._fail(place, f"a timeout is at most {TIMEOUT_S_MAX} seconds", 'write such as "30s"')
        return timeout_s
