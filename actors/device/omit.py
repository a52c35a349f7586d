"""Switches that leave one rule out each. They exist for the simulation, which must fail without any of them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Omit:
    """Nothing but a test ever sets one of these."""

    journal_before_begin: bool = False  # D1: begin first, write `Begun` only together with the outcome
    drop_not_begun: bool = False  # D0: keep what a lost socket had brought and was not begun
    clock_bound: bool = False  # §5.2: count from when the answer came in, not from when the question went out
    begun_flag: bool = False  # §5.8: report a command that began and failed as not begun
    deadline: bool = False  # D3: begin whatever its deadline says
