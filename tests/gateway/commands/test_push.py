"""`heliograph push keys`: what it prints starts a gateway."""

import tomllib
from pathlib import Path

import pytest

from gateway.commands.cli import main
from gateway.main.settings import SettingsError, load
from gateway.push.vapid import read_keys


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["push", "keys", *arguments]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    return told.out


def test_lines_are_the_section_of_a_file_of_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "heliograph.toml").write_text(printed(capsys, "--subject", "mailto:ops@example.org"))
    keys = read_keys(load(file, {}, {}).push)
    assert keys is not None
    assert keys.subject == "mailto:ops@example.org"


def test_lines_are_variables_of_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "--env", "--subject", "https://example.org/contact").splitlines()
    keys = read_keys(load(None, dict(line.split("=", 1) for line in lines), {}).push)
    assert keys is not None
    assert keys.subject == "https://example.org/contact"


def test_without_a_subject_there_is_a_place_for_it_and_no_start(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys)
    assert '# vapid_subject = "mailto:you@example.org"' in text
    with pytest.raises(SettingsError, match=r"push\.vapid_subject is not set"):
        read_keys(load(None, {}, {f"push.{name}": key for name, key in tomllib.loads(text)["push"].items()}).push)


def test_pair_is_another_one_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys) != printed(capsys)


@pytest.mark.parametrize(
    "subject", ["", "me", "http://example.org", 'mailto:a"@b', "https://a\\b", "mailto:a@b\nx = 1"]
)
def test_subject_that_nobody_takes_is_refused(subject: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["push", "keys", "--subject", subject]) == 2
    told = capsys.readouterr()
    assert (told.out, "--subject" in told.err) == ("", True)
