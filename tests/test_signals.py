"""Tests of signals hold in a shell's background too."""

import signal
import subprocess
import sys

_OF_A_CHILD = "import signal; print(*(int(signal.getsignal(n) is signal.SIG_IGN) for n in {numbers}))"
_HERE = """
import os, signal, subprocess, sys
for number in {numbers}:
    signal.signal(number, signal.SIG_IGN)
if {is_heard}:
    from tests.signals import let_children_hear
    let_children_hear()
    for number in {numbers}:
        os.kill(os.getpid(), number)
subprocess.run([sys.executable, "-c", {child!r}], check=True)
"""
_NUMBERS = [int(number) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)]


def ignored_by_a_child(*, is_heard: bool) -> str:
    child = _OF_A_CHILD.format(numbers=_NUMBERS)
    code = _HERE.format(numbers=_NUMBERS, is_heard=is_heard, child=child)
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_a_child_inherits_what_is_ignored() -> None:
    assert ignored_by_a_child(is_heard=False) == "1 1 1"


def test_a_child_of_pytest_hears_what_pytest_ignores_and_goes_on_ignoring() -> None:
    assert ignored_by_a_child(is_heard=True) == "0 0 0"


def test_no_test_starts_children_that_are_deaf() -> None:
    assert all(signal.getsignal(number) is not signal.SIG_IGN for number in _NUMBERS)
