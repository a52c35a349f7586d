"""The settings of governance; what it decides is in the policy file that they name."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GovernanceSettings:
    policy: str | None = None  # the path of the policy file; None: the default policy
    reload_s: float = 2.0  # between looks at it; a change counts once two looks have seen the same
