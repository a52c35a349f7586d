"""`heliograph node …`: what operators do to nodes is in `node_actions`, being one (`node run`) in `node_run`, and
trying one (`node check`) in `node_check`."""

from gateway.commands import node_actions, node_check, node_run
from gateway.commands.parsing import Subparsers


def add(commands: Subparsers) -> None:
    actions = commands.add_parser("node", help="enroll, name, renew, revoke nodes; be one; try one").add_subparsers(
        required=True, metavar="ACTION"
    )
    node_actions.add(actions)
    node_run.add(actions)
    node_check.add(actions)
