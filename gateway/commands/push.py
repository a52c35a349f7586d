"""`heliograph push keys`. The private key goes to standard output and nowhere else."""

import argparse

from gateway.commands.parsing import CommandError, Subparsers
from gateway.push.vapid import is_subject, new_pair

_EXAMPLE = "mailto:you@example.org"


def add(commands: Subparsers) -> None:
    actions = commands.add_parser("push", help="set up Web Push").add_subparsers(required=True, metavar="ACTION")
    keys = actions.add_parser("keys", help="make a VAPID key pair and print it as settings")
    keys.add_argument(
        "--subject",
        help="where push services reach the operator of this gateway: mailto: and an address, or an https: URL",
    )
    keys.add_argument("--env", action="store_true", help="as variables of the environment, not as TOML")
    keys.set_defaults(run=_keys)


def _keys(arguments: argparse.Namespace) -> int:
    subject: str | None = arguments.subject
    if subject is not None and not is_subject(subject):
        raise CommandError(f"--subject is mailto: and an address, or an https: URL, such as {_EXAMPLE}")
    public_key, private_key = new_pair()
    values = {"vapid_public_key": public_key, "vapid_private_key": private_key, "vapid_subject": subject or _EXAMPLE}
    if not arguments.env:
        print("[push]")
    for name, value in values.items():
        # Without a subject of yours the gateway does not start: nobody should be written to by mistake.
        is_yours = name != "vapid_subject" or subject is not None
        line = f"{name.upper()}={value}" if arguments.env else f'{name} = "{value}"'
        print(line if is_yours else f"# {line}")
    return 0
