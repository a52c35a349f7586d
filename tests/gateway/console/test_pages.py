"""What the console's shell loads: all of it is there, and nothing of it is in the page itself."""

import re
from pathlib import Path

import pytest

from gateway.console.pages import MODULES, STATIC, TEMPLATES
from gateway.identity.passkeys.page_script import PASSKEY_SCRIPT
from gateway.pages.assets import COMMON_STATIC

SCRIPTS = sorted(STATIC.glob("*.js"))
SERVED = {path.name for path in (*STATIC.iterdir(), *COMMON_STATIC.iterdir(), PASSKEY_SCRIPT)}
LINE_CHARS_MAX = 120


def imported(script: Path) -> set[str]:
    return set(re.findall(r'^(?:import|export) .*?"\./([^"]+)";$', script.read_text(), re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_module_imports_only_what_is_served_and_never_later(script: Path) -> None:
    assert imported(script) <= SERVED
    assert "import(" not in script.read_text()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_module_makes_no_markup_of_text(script: Path) -> None:
    text = script.read_text()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval(", "Function("):
        assert word not in text, word
    assert max(map(len, text.splitlines())) <= LINE_CHARS_MAX


def test_every_module_is_part_of_the_page_and_loaded_with_it() -> None:
    reached, found = {"console.js"}, {"console.js"}
    while found:
        found = {name for one in found if (STATIC / one).exists() for name in imported(STATIC / one)} - reached
        reached |= found
    assert {path.name for path in SCRIPTS} <= reached
    assert [path.name for path in SCRIPTS] == MODULES


def test_shell_has_neither_script_nor_style_of_its_own() -> None:
    shell = (TEMPLATES / "console.html").read_text()
    assert re.findall(r"<script(?![^>]* src=)", shell) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=", shell) == []
