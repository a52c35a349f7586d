"""The manifest of a backup: what is in it, with the hash of each file, and by which forms it was written. Pure.

It is the last member, so that a backup that breaks off has none. `judge` says whether what was read is a whole backup
that this version can restore.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from gateway.backup.member_rules import part_of

FORM = 1  # of backups: of the manifest, and of what its members are
FORM_MAX = 2**31 - 1  # of anything, as SQLite has it; what says more is damaged, not newer
BYTES_MAX = 256 * 1024**2  # of a manifest, a million members and more; a longer one is refused without being read
MEMBERS_MAX = BYTES_MAX // 128  # more than a manifest has room for; a backup with more is refused where it has them
MADE_AT_MS_MAX = 253_402_300_799_999  # the year 9999, after which nobody has a date
NEEDED = ("token.key", "ca.key", "ca.crt")  # without which there is no data folder


class Member(msgspec.Struct, frozen=True):
    name: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    form: int
    version: str  # of the program that took it
    made_at_ms: Annotated[int, msgspec.Meta(ge=0, le=MADE_AT_MS_MAX)]
    log_id: str | None  # None: the gateway never ran
    forms: Mapping[
        str, Annotated[int, msgspec.Meta(ge=-FORM_MAX, le=FORM_MAX)]
    ]  # of its databases, by the part of the folder that they are
    has_spaces: bool
    has_audit: bool
    left_out: int  # files of the folder that the program did not know
    members: tuple[Member, ...]

    @property
    def size_bytes(self) -> int:
        return sum(member.size for member in self.members)

    def encoded(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"


class NotRestorable(msgspec.Struct, frozen=True):
    why: str  # and what to do


def judge(found: bytes | None, seen: Mapping[str, Member], forms_max: Mapping[str, int]) -> Manifest | NotRestorable:
    """`found` is the manifest as it was read, `seen` all other members; `forms_max`: what this version reads."""
    if found is None:
        return broken("it has no manifest, which comes last: the file is not whole")
    try:
        # Of a newer form nobody knows more than this.
        head = msgspec.json.decode(found, type=dict[str, Any])
        form, version = head.get("form"), head.get("version")
        if isinstance(form, int) and FORM < form <= FORM_MAX:
            return _newer(f"backups of form {form}", FORM, version)
        manifest = msgspec.json.decode(found, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return broken("its manifest cannot be read")
    if form != FORM:
        return broken("its manifest has a form that never was")
    for part, known in manifest.forms.items():
        if part not in forms_max or known > forms_max[part]:
            return _newer(f"{part[:16]} of form {known}", forms_max.get(part, 0), manifest.version)
    listed = {member.name: member for member in manifest.members}
    if len(listed) != len(manifest.members) or any(part_of(name) is None for name in (*listed, *seen)):
        return broken("it has a file that no backup has")
    if listed.keys() != seen.keys():
        return broken("a file is missing, or one too many")
    if any(seen[name] != member for name, member in listed.items()):
        return broken("a file in it is not as it was written")
    if not all(name in listed for name in NEEDED):
        return broken("the keys of a gateway are missing")
    return manifest


def broken(why: str) -> NotRestorable:
    return NotRestorable(f"this is no whole backup ({why}): use another one, or copy this one again from where it was")


def _newer(what: str, known: int, version: object) -> NotRestorable:
    by = f"heliograph {version}" if isinstance(version, str) and version.isprintable() and len(version) < 64 else "one"
    return NotRestorable(
        f"a newer version made this backup: it has {what}, and this one reads up to {known}. "
        f"Install the version that made it ({by}) or a later one, and restore with that"
    )
