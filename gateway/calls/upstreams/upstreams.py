"""All upstreams that the policy names: started and stopped as it changes, and found by the names of their tools."""

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import structlog
import trio

from actors.supervision.child import ChildSpec, Handle, Kind
from actors.supervision.errors import SupervisorStoppingError
from actors.supervision.registry import Registry
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.calls.answers import No
from gateway.calls.flat_names import FlatNames
from gateway.calls.upstreams.actor import Upstream
from gateway.calls.upstreams.settings import UpstreamSettings
from gateway.calls.upstreams.tool_rules import UpstreamTool
from gateway.governance.policy.policy import Policy
from gateway.governance.policy.upstream_rules import UpstreamRules
from gateway.identity.scopes import Denied, may_use
from gateway.identity.tokens import Principal
from schemas.contract import Flaw
from schemas.errors import Code

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

LOOK_S = 1.0  # between looks at the policy
_NO_NAMES = FlatNames(())


OFFLINE = No(
    Code.NODE_OFFLINE,
    "The server behind this tool is not connected.",
    "Wait and call again, or list the tools to see what there is meanwhile.",
)


@dataclass(frozen=True, slots=True)
class UpstreamTarget:
    """What a name points at, as far as its prefix says. Without an upstream it is not running yet, or not any more."""

    rules: UpstreamRules
    own_name: str
    upstream: Upstream | None

    @property
    def name(self) -> str:
        return f"{self.rules.name}.{self.own_name}"

    @property
    def tool(self) -> UpstreamTool | None:
        return None if self.upstream is None else self.upstream.tools.get(self.name)

    def denied(self, principal: Principal, wall_ms: int) -> Denied | None:
        safety_class = self.rules.safety_class(self.own_name)
        return may_use(principal, safety_class, principal.tenant in self.rules.tenants, wall_ms)

    def unready(self, wall_ms: int) -> No | None:
        del wall_ms
        if self.upstream is None or not self.upstream.is_up:
            return OFFLINE
        return No(Code.MANIFEST_NOT_FOUND) if self.tool is None else None

    def flaw(self, arguments: Any) -> Flaw | None:
        assert self.tool is not None
        return self.tool.flaw(arguments)

    def takes(self, arguments: Any) -> bool:
        return self.flaw(arguments) is None


class Upstreams:
    def __init__(
        self,
        supervisor: Supervisor,
        policy: Callable[[], Policy],
        settings: UpstreamSettings,
        changed: Callable[[str], None],
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """`changed` is told of each tenant whose tools are others than before."""
        self._supervisor = supervisor
        self._policy = policy
        self._settings = settings
        self._tell = changed
        self._environment = environment
        self._running: Registry[str, Upstream] = Registry()
        self._handles: dict[str, tuple[UpstreamRules, Handle]] = {}
        self._named: tuple[Policy, dict[str, UpstreamRules]] | None = None
        self._flat: dict[str, tuple[list[Mapping[str, UpstreamTool]], FlatNames]] = {}  # by tenant

    def start(self) -> None:
        self._supervisor.start(ChildSpec(name="upstreams", run=self._keep, kind=Kind.PERMANENT, stage=Stage.CORE))

    # ---- who runs ---------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        while True:
            self._reconcile()
            await trio.sleep(LOOK_S)

    def _reconcile(self) -> None:
        wanted = self._rules()
        for name, (rules, handle) in list(self._handles.items()):
            if wanted.get(name) != rules:
                handle.cancel()
            if handle.ended or wanted.get(name) != rules:
                del self._handles[name]
        for name, rules in wanted.items():
            if name not in self._handles:
                self._start(rules)

    def _start(self, rules: UpstreamRules) -> None:
        def changed() -> None:
            for tenant in sorted(rules.tenants):
                self._tell(tenant)

        upstream = Upstream(rules, self._settings, self._environment, changed)
        spec = ChildSpec(
            name="upstream",
            run=upstream.run,
            kind=Kind.TEMPORARY,  # it begins anew by itself; if even that crashes, the next look starts another
            stage=Stage.NODES,  # after the calls have finished
            entry=self._running.entry(rules.name, upstream),
        )
        try:
            self._handles[rules.name] = (rules, self._supervisor.start(spec))
        except SupervisorStoppingError:
            return

    def _rules(self) -> dict[str, UpstreamRules]:
        policy = self._policy()
        if self._named is None or self._named[0] is not policy:
            self._named = (policy, {rules.name: rules for rules in sorted(policy.upstreams, key=lambda one: one.name)})
        return self._named[1]

    # ---- what there is ----------------------------------------------------------------------------------------------

    def find(self, name: str) -> UpstreamTarget | None:
        """None when the name is none of an upstream's."""
        prefix, dot, own_name = name.partition(".")
        rules = self._rules().get(prefix)
        if rules is None or not dot:
            return None
        upstream = self._running.find(prefix)
        # One that still runs by an older policy is as good as away.
        return UpstreamTarget(rules, own_name, upstream if upstream is not None and upstream.rules == rules else None)

    def flat_names(self, tenant: str) -> FlatNames:
        """Of all tools that this tenant's upstreams have now. Made anew only when one of them lists others."""
        lists = [upstream.tools for _, upstream in self._of(tenant) if upstream is not None]
        if not lists:
            return _NO_NAMES
        made = self._flat.get(tenant)
        if made is None or len(made[0]) != len(lists) or any(a is not b for a, b in zip(made[0], lists, strict=True)):
            made = self._flat[tenant] = lists, FlatNames(name for tools in lists for name in tools)
        return made[1]

    def meant_by(self, tenant: str, text: str) -> str | None:
        name = self.flat_names(tenant).name_of(text)
        if name is not None:
            return name
        away = (rules.name for rules, upstream in self._of(tenant) if upstream is None or not upstream.is_up)
        prefix = next((prefix for prefix in away if text.startswith(f"{prefix}-")), None)
        return None if prefix is None else f"{prefix}.{text[len(prefix) + 1 :]}"

    def looks(self) -> Iterator[tuple[UpstreamRules, Upstream | None]]:
        """All that the policy names, by name; without an upstream it is not running yet."""
        for prefix, rules in self._rules().items():
            upstream = self._running.find(prefix)
            yield rules, upstream if upstream is not None and upstream.rules == rules else None

    def _of(self, tenant: str) -> Iterator[tuple[UpstreamRules, Upstream | None]]:
        return (look for look in self.looks() if tenant in look[0].tenants)

    def tools(self, principal: Principal, wall_ms: int, after: str | None = None) -> Iterator[UpstreamTool]:
        """What scope and tenant give to this principal, by upstream and name, behind the tool named `after`.

        Use it before the next await.
        """
        first = "" if after is None else after.partition(".")[0]
        for prefix, rules in self._rules().items():
            upstream = self._running.find(prefix)
            if prefix < first or upstream is None or upstream.rules != rules:
                continue
            names = list(upstream.tools)
            begin = bisect_right(names, after) if after is not None and prefix == first else 0
            for name in names[begin:]:
                tool = upstream.tools[name]
                if may_use(principal, tool.safety_class, principal.tenant in rules.tenants, wall_ms) is None:
                    yield tool
