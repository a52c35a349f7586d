"""`make conformance`, third part: the kit on the node of docs/examples/node-js.

Without the checks that take half a minute or more by their nature: those are for `heliograph node check` by hand.
"""

import sys

from gateway.commands.cli import main as heliograph
from tests.node_js.installed import HOW, find_command


def main() -> int:
    command = find_command()
    if command is None:
        print(f"docs/examples/node-js cannot run: {HOW}", file=sys.stderr)
        return 1
    return heliograph(["node", "check", "--quick", "--", *command, "{folder}", "{url}"])


if __name__ == "__main__":
    sys.exit(main())
