"""`heliograph node …`: what operators do to nodes is in `node_actions`, being one (`node run`) in `node_run`, and
trying one (`node check`) in `node_check`. A device has the packages of `node run` alone."""

from gateway.commands import node_run
from gateway.commands.extras import add_command
from gateway.commands.parsing import Subparsers

OF_OPERATORS = ("enroll", "rename", "tag", "renew", "revoke", "forget")


def add(commands: Subparsers) -> None:
    actions = commands.add_parser("node", help="enroll, name, renew, revoke nodes; be one; try one").add_subparsers(
        required=True, metavar="ACTION"
    )
    add_command(actions, "node_actions", OF_OPERATORS)
    node_run.add(actions)
    add_command(actions, "node_check", ["check"])
