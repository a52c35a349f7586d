"""One thing that was found: how bad it is, what it is about, what is the matter, and what to do."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    ERROR = "error"  # something does not work, or will not at the next start
    WARNING = "warning"  # it works, and should not stay as it is
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    about: str  # a fixed word
    matter: str
    remedy: str
