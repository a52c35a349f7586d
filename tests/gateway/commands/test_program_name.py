"""The name by which a command says that it can be run again."""

from pathlib import Path

from gateway.commands.program_name import typed


def installed(folder: Path) -> Path:
    program = folder / "bin" / "heliograph"
    program.parent.mkdir(parents=True)
    program.write_text("")
    program.chmod(0o755)
    return program


def test_program_of_a_clone_is_typed_by_its_path(tmp_path: Path) -> None:
    assert typed("gateway/commands/cli.py", tmp_path) == ".venv/bin/heliograph"
    assert typed(".venv/bin/heliograph", tmp_path) == ".venv/bin/heliograph"
    assert typed(str(tmp_path / ".venv" / "bin" / "heliograph"), tmp_path) == ".venv/bin/heliograph"


def test_program_on_the_path_is_typed_by_its_name(tmp_path: Path) -> None:
    program = installed(tmp_path / "opt")
    assert typed(str(program), tmp_path / "home", str(program.parent)) == "heliograph"


def test_program_elsewhere_is_typed_whole(tmp_path: Path) -> None:
    program, other = installed(tmp_path / "opt"), installed(tmp_path / "other")
    assert typed(str(program), tmp_path / "home", str(other.parent)) == str(program)
    assert typed(str(program), tmp_path / "home", "") == str(program)
