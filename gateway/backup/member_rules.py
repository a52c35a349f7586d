"""Which files of a data folder are in a backup, by name; all others are not. Pure.

A name is checked when a backup is taken and again when one is restored, where it becomes part of a path: the set is
closed. What each file is for is told by whoever writes it.
"""

import re
from enum import StrEnum

MANIFEST = "manifest.json"  # of a backup, its last member; no file of a folder
LOG = "log.sqlite"
SPACES = "spaces.sqlite"
LEAFS, AUDIT, SITES, SPACE_FILES, SPACE_KEYS = "leafs", "audit", "sites", "spaces", "keys"
PROCESSES = "processes"  # of gateways that share the folder: each but the first has its part of the audit there
REVOKED = "revoked"
PROJECTS = "projects/"  # what projects keep in a store like that of spaces: subscriptions, which last
_ID = "[0-9a-hjkmnp-tv-z]{26}"
_STORE = rf"(?:spaces\.sqlite|spaces/(?:keys|{_ID})/{_ID})"


class Part(StrEnum):
    """What a file is a part of."""

    KEYS = "keys"
    LOG = "log"
    NODES = "nodes"
    REVOCATIONS = "revocations"
    AUDIT = "audit"
    SITES = "sites"
    PROJECTS = "projects"
    SPACES = "spaces"


_NAMES = {
    Part.KEYS: r"token\.key|ca\.key|ca\.crt|echo\.key|token\.jwks|operator-scopes\.since",
    Part.LOG: r"log\.sqlite",
    Part.NODES: r"leafs/[0-9a-f]{64}\.crt",
    Part.REVOCATIONS: REVOKED,
    Part.AUDIT: r"(?:processes/[1-9][0-9]{0,2}/)?audit/[0-9]{16}\.sqlite",
    Part.SITES: r"sites/([0-9a-f]{2})/\1[0-9a-f]{62}",
    Part.PROJECTS: rf"projects/{_STORE}",
    Part.SPACES: _STORE,
}
_PATTERNS = {part: re.compile(pattern, re.ASCII) for part, pattern in _NAMES.items()}
_OUTSIDE = re.compile(
    # Of a process: who holds the folder, where it is reached, what is still being written. They end with it.
    r"lock|running\.json|backup\.tmp(\.[0-9]+)?(/.*)?|restoring(/.*)?|sites/incoming/.*|.*\.new|.*\.part"
    r"|processes/[0-9]+\.(?:lock|sock)"
    # Of SQLite, beside a database: what is in them is in the copy.
    r"|(?:.*/)?[a-z0-9]+\.sqlite-(?:wal|shm|journal)",
    re.ASCII,
)


def part_of(name: str) -> Part | None:
    """None: it is never in a backup."""
    return next((part for part, pattern in _PATTERNS.items() if pattern.fullmatch(name)), None)


def is_known(name: str) -> bool:
    """Whether this version knows what the file is, though it may belong in no backup."""
    return part_of(name) is not None or _OUTSIDE.fullmatch(name) is not None
