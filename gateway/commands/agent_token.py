"""The gateway that `call` and `watch` talk to as an agent, and the token they use: given, or minted for one tool.

A minted one has the tenant and the one scope that the tool takes. Whose a device's tool is, the gateway says; whose
another MCP server's tool is, and whether it changes anything, stands in the policy that the gateway reads.
"""

import argparse
import os
import uuid
from pathlib import Path

from gateway.calls.flat_names import is_ours, target_of
from gateway.commands.parsing import CommandError
from gateway.commands.reach import Gateway, Operator, add_data, data_path, need_tokens, running_note
from gateway.governance.policy.source import read_policy
from gateway.governance.policy.text import PolicyFlaw
from gateway.identity.scopes import needed_scope
from gateway.identity.tokens import OperatorScope, Scope, TokenClass
from gateway.main.command_variables import TOKEN
from schemas.fleet_tools import KIND_TOOLS, LOOKS
from schemas.projection import KIND_SHORTS, ToolName


def add_agent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help="of the gateway (default: the one that runs on --data)")
    parser.add_argument("--token", help=f"an agent's (default: {TOKEN}, or one minted from --data)")
    add_data(parser)


def as_agent(arguments: argparse.Namespace, tool: str, life_s: int, tenant: str | None = None) -> tuple[Gateway, str]:
    """Raises CommandError."""
    gateway, given = gateway_of(arguments), given_token(arguments)
    if given is not None and tenant is not None:
        raise CommandError("the token says which tenant it is of: leave --tenant out, or the token")
    return gateway, _minted(data_path(arguments), tool, life_s, tenant) if given is None else given


def gateway_of(arguments: argparse.Namespace) -> Gateway:
    """Raises CommandError."""
    return Gateway.at(arguments.url) if arguments.url else Gateway.on(data_path(arguments))


def given_token(arguments: argparse.Namespace) -> str | None:
    given: str | None = arguments.token or os.environ.get(TOKEN)
    return given.strip() if given else None


def is_of_a_device(tool: str) -> bool:
    return tool.partition(".")[0] in KIND_SHORTS or is_ours(tool)


def _minted(path: Path, tool: str, life_s: int, tenant: str | None) -> str:
    need_tokens(path, f"give an agent's token with --token, or in {TOKEN}")
    operator = Operator(path, (OperatorScope.FLEET_READ, OperatorScope.TOKENS_MINT))
    if is_of_a_device(tool):
        nodes = operator.each("/admin/nodes", "nodes")
        tenants = {node["tenant"] for node in nodes if _has(node["tools"], tool)}
        scope: Scope | None = Scope.READ_ONLY  # all kinds of devices' tools are
        if not tenants:
            raise CommandError("no node has that tool; `heliograph nodes --json` lists the tools of them all")
    else:
        tenants, scope = _of_an_upstream(path, tool)
    request = {
        "token_class": TokenClass.AGENT_RUNTIME,
        "sub": f"agent_{uuid.uuid4()}",
        "tenant": _chosen(tenants, tenant),
        "scopes": [scope],
        "life_s": life_s,
    }
    token: str = operator.post("/admin/mint", request, "token")["token"]
    return token


def _has(tools: list[str], tool: str) -> bool:
    """A tool of the whole fleet is of every tenant that has a node."""
    target = target_of(tool)
    return str(target) in tools if isinstance(target, ToolName) else tool in KIND_TOOLS or tool in LOOKS


def _of_an_upstream(path: Path, tool: str) -> tuple[set[str], Scope | None]:
    """Who may use it, and with which scope."""
    (file,) = running_note(path, "policy")
    policy = None if file is None else read_policy(Path(file))
    if isinstance(policy, PolicyFlaw):
        raise CommandError(f"{file}: {policy.words}; or give an agent's token with --token")
    prefix, _, own_name = tool.partition(".")
    upstreams = {rules.name: rules for rules in policy.upstreams} if policy is not None else {}
    if prefix not in upstreams:
        others = f"; upstreams are {', '.join(sorted(upstreams))}" if upstreams else ", and there are no upstreams here"
        raise CommandError(f"no node has that tool (`heliograph nodes --json` lists theirs){others}")
    rules = upstreams[prefix]
    return set(rules.tenants), needed_scope(rules.safety_class(own_name), "invoke")


def _chosen(tenants: set[str], wanted: str | None) -> str:
    named = ", ".join(sorted(tenants))
    if wanted is None and len(tenants) > 1:
        raise CommandError(f"several tenants may use that tool: say which with --tenant ({named})")
    if wanted is not None and wanted not in tenants:
        raise CommandError(f"that tenant may not use that tool: leave --tenant out, or choose from {named}")
    return next(iter(tenants)) if wanted is None else wanted
