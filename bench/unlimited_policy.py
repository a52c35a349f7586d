"""A policy under which no benchmark runs out of money."""

from pathlib import Path


def unlimited_policy(folder: Path) -> str:
    """The path of such a policy, for the setting `governance.policy`."""
    file = folder / "unlimited_policy.toml"
    file.write_text('[[agents]]\nagent = "*"\ntools = ["**"]\nbudget = 1000000\n')
    return str(file)
