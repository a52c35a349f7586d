"""What `site deploy` publishes of a folder, and what it does to have it there. Pure: who walks and sends is elsewhere.

    left out      names that begin with a dot, but for .well-known · bin/ and deploy scripts at the top, which are tools
                  and no site · what .gitignore ignores · links, which may lead anywhere · what is no plain file · data
                  folders of gateways, whose keys are there
    unchanged     what the service has with the same SHA-256
    uploaded      all else; pages last, so that no reader of a new page asks for a file that is not there yet
    deleted       with --prune: what the service has and the folder does not, after all uploads

A run that breaks off has published some files whole and others not at all; the next one finds the first unchanged.
"""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from schemas.echo.site_paths import WELL_KNOWN, is_site_path

_TOOLS = "bin"  # a folder
_SCRIPTS = frozenset({"deploy", "deploy.sh", "deploy.bash", "deploy.py", "deploy.rb", "deploy.ps1", "deploy.bat", "deploy.cmd"})  # fmt: skip  # noqa: E501
_PAGES = (".html", ".htm", ".xhtml")


class Skip(Enum):
    """Why something of a folder is left out; the words follow on a count."""

    HIDDEN = "hidden"
    TOOL = "tools"
    IGNORED = "ignored by .gitignore"
    LINK = "symbolic links"
    SPECIAL = "no plain files"
    DATA = "data folders of a gateway"


def skip_by_name(name: str, *, at_top: bool, is_folder: bool) -> Skip | None:
    """What is left out whatever else is said of it."""
    if name.startswith(".") and name != WELL_KNOWN:
        return Skip.HIDDEN
    if at_top and (name == _TOOLS if is_folder else name.lower() in _SCRIPTS):
        return Skip.TOOL
    return None


def site_path(names: Sequence[str]) -> str | None:
    """Where a file with these names below the folder is published; None: no service takes such a path.

    Some systems write accents apart from their letters: a URL has one form.
    """
    path = unicodedata.normalize("NFC", "/".join(names))
    return path if is_site_path(path) else None


@dataclass(frozen=True, slots=True)
class Upload:
    path: str  # on the site
    size: int
    sha256: str
    source: Path | bytes  # a file, or the content itself


@dataclass(frozen=True, slots=True)
class Plan:
    """In this order: all of the first ones, then all pages, then what goes."""

    files: tuple[Upload, ...]
    pages: tuple[Upload, ...]
    deletions: tuple[str, ...]
    unchanged: int

    @property
    def uploads(self) -> tuple[Upload, ...]:
        return self.files + self.pages


def plan(wanted: Iterable[Upload], published: Mapping[str, str], *, prunes: bool) -> Plan:
    """`published`: the SHA-256 of what the site has, by path."""
    wanted = sorted(wanted, key=lambda one: one.path)
    changed = [one for one in wanted if published.get(one.path) != one.sha256]
    kept = {one.path for one in wanted}
    return Plan(
        files=tuple(one for one in changed if not _is_page(one.path)),
        pages=tuple(one for one in changed if _is_page(one.path)),
        deletions=tuple(sorted(path for path in published if path not in kept)) if prunes else (),
        unchanged=len(wanted) - len(changed),
    )


def _is_page(path: str) -> bool:
    return path.lower().endswith(_PAGES)


# ---- when the service says no ----------------------------------------------------------------------------------------

RATE_WAITS_MAX = 100  # of one upload over the rate; then it has failed
RATE_WAIT_S_MIN, RATE_WAIT_S_MAX = 0.05, 60.0
FAULT_WAITS_S = (0.5, 1.0, 2.0, 4.0)  # before another attempt where a later one may succeed; then it has failed
UNREACHABLE = "unreachable"  # the word for an answer that did not come
_FAULTS = frozenset({"overloaded", "storage_not_ready", UNREACHABLE})


def wait_s(word: str, retry_after_ms: int | None, failures: int) -> float | None:
    """Before the next attempt at an upload that has failed so often, this time with this word; None: there is none."""
    if word == "rate_limited" and failures <= RATE_WAITS_MAX:
        asked_s = RATE_WAIT_S_MAX if retry_after_ms is None else retry_after_ms / 1000
        return min(max(asked_s, RATE_WAIT_S_MIN), RATE_WAIT_S_MAX)
    if word in _FAULTS and failures <= len(FAULT_WAITS_S):
        return FAULT_WAITS_S[failures - 1]
    return None
