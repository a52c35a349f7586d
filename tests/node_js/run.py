"""`make conformance`, third part: the whole kit, slow checks included, on the node of docs/examples/node-js."""

import sys

from gateway.commands.cli import main as heliograph
from tests.node_js.installed import HOW, find_command


def main() -> int:
    command = find_command()
    if command is None:
        print(f"docs/examples/node-js cannot run: {HOW}", file=sys.stderr)
        return 1
    return heliograph(["node", "check", "--", *command, "{folder}", "{url}"])


if __name__ == "__main__":
    sys.exit(main())
