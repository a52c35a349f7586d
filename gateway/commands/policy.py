"""`heliograph policy check | explain | push`."""

import argparse
import json
from pathlib import Path
from typing import Any

import msgspec

from gateway.commands.parsing import CommandError, Subparsers, complain
from gateway.commands.reach import Operator, add_data, ask, checked_agent, data_path, running_note
from gateway.governance.policy.explain import Explanation, explain
from gateway.governance.policy.policy import DEFAULT
from gateway.governance.policy.source import read_policy
from gateway.governance.policy.text import PolicyFlaw
from gateway.identity.tokens import OperatorScope
from gateway.main.data_folder import DataFolder
from schemas.labels import NAME_RULE, TAG_RULE, Labels, is_name, tags_of

PUSH_S_MAX = 30.0  # for an answer: the engine may be choosing a leader


def add(commands: Subparsers) -> None:
    policy = commands.add_parser("policy", help="check a policy, or ask what it would do with a call")
    actions = policy.add_subparsers(required=True, metavar="ACTION")
    check = actions.add_parser("check", help="say where a policy file is broken (exit 1 if it is)")
    check.add_argument("file", type=Path)
    check.set_defaults(run=_check)
    push = actions.add_parser(
        "push", help="put a policy in force at all gateways of an engine (exit 1 if it is broken)"
    )
    push.add_argument("file", type=Path)
    push.add_argument(
        "--expect", type=int, metavar="REVISION", help="only in place of this one, as the push before printed it"
    )
    add_data(push)
    push.set_defaults(run=_push)
    explaining = actions.add_parser("explain", help="what would happen, and which line says so (exit 1 if denied)")
    explaining.add_argument("agent", help="agent_<uuid>")
    explaining.add_argument("tool", help="a tool's whole name")
    where = explaining.add_mutually_exclusive_group()
    where.add_argument("--file", type=Path, help="the policy file (default: that of the gateway that runs on --data)")
    add_data(where)
    explaining.add_argument("--name", help="assume that the tool's node has this name (default: none)")
    explaining.add_argument(
        "--tag", action="append", default=[], metavar="KEY=VALUE", help="assume this tag; repeatable"
    )
    explaining.add_argument("--json", action="store_true", help="for scripts; money in micro-dollars")
    explaining.set_defaults(run=_explain)


def _check(arguments: argparse.Namespace) -> int:
    policy = read_policy(arguments.file)
    if isinstance(policy, PolicyFlaw):
        return _tell_flaw(arguments.file, policy)
    entries = len(policy.entries)
    upstreams = len(policy.upstreams)
    more = f" and {upstreams} upstream{'' if upstreams == 1 else 's'}" if upstreams else ""
    print(f"{arguments.file} is a policy with {entries} {'entry' if entries == 1 else 'entries'}{more}")
    return 0


def _push(arguments: argparse.Namespace) -> int:
    policy = read_policy(arguments.file)
    if isinstance(policy, PolicyFlaw):
        return _tell_flaw(arguments.file, policy)
    text = arguments.file.read_text()
    path = data_path(arguments)
    expected = {} if arguments.expect is None else {"expected_revision": arguments.expect}

    def direct(_: DataFolder) -> Any:
        raise CommandError(f"no gateway runs on {path}: push where one does that is one of several (engine.url)")

    def remote(operator: Operator) -> Any:
        return operator.post("/admin/policy/push", {"text": text, **expected}, "revision", PUSH_S_MAX)

    pushed = ask(path, direct, remote, OperatorScope.POLICY_WRITE)
    entries = pushed["entries"]
    print(
        f"revision {pushed['revision']}: policy {pushed['policy']}, {entries} {'entry' if entries == 1 else 'entries'}"
    )
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    agent, file, labels = checked_agent(arguments.agent), arguments.file, _supposed(arguments)
    if file is None:
        try:
            (named,) = running_note(data_path(arguments), "policy")
        except CommandError as error:
            raise CommandError(f"{error}, or name the policy with --file") from None
        file = None if named is None else Path(named)
    policy = DEFAULT if file is None else read_policy(file)
    if isinstance(policy, PolicyFlaw):
        return _tell_flaw(file, policy)
    told = explain(policy, agent, arguments.tool, labels)
    if arguments.json:
        print(json.dumps({"file": None if file is None else str(file), **msgspec.to_builtins(told)}, indent=2))
    else:
        _print(told, file)
    return 0 if told.allowed else 1


def _supposed(arguments: argparse.Namespace) -> Labels:
    if arguments.name is not None and not is_name(arguments.name):
        raise CommandError(f"--name is no name of a node. {NAME_RULE}")
    tags = tags_of(arguments.tag)
    if tags is None:
        raise CommandError(f"a --tag is none, or its key is there twice, or there are too many. {TAG_RULE}")
    return Labels(arguments.name, tags)


def _print(told: Explanation, file: Path | None) -> None:
    print("the default policy: there is no file" if file is None else file)
    print(f"  {'':<10}policy  revision {told.revision}")
    for statement in told.statements:
        where = "default" if statement.line is None else f"line {statement.line}"
        print(f"  {where:<10}{statement.about:<8}{statement.words}")


def _tell_flaw(file: Path, flaw: PolicyFlaw) -> int:
    """The answer is no; for a file that is not there, the command was used wrongly."""
    if flaw.line is None:
        return complain(f"{file}: {flaw.words}")
    print(f"{file}: {flaw.words}")
    return 1
