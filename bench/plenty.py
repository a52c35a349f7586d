"""A policy under which no benchmark runs out of money."""

from pathlib import Path


def plenty(folder: Path) -> str:
    """The path of such a policy, for the setting `governance.policy`."""
    file = folder / "plenty.toml"
    file.write_text('[[agents]]\nagent = "*"\ntools = ["**"]\nbudget = 1000000\n')
    return str(file)
