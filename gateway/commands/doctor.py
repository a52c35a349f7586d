"""`heliograph doctor`: what is wrong with a gateway's machine, folder and settings, or soon will be.

Beside a running gateway or without one; nothing is changed.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from gateway.commands.parsing import Subparsers, printable
from gateway.doctor.engine_look import look_at_engine
from gateway.doctor.facts import Folder, Machine
from gateway.doctor.finding import Finding, Severity
from gateway.doctor.finding_rules import by_severity, findings
from gateway.doctor.look import look_at_folder, look_at_machine, look_at_tls
from gateway.main.settings import Settings, SettingsError, data_from_environment, from_environment
from gateway.main.start_check import SETTINGS, start_findings

SECONDS_MAX = 20.0


def add(commands: Subparsers) -> None:
    doctor = commands.add_parser("doctor", help="what is wrong here, or soon will be, and what to do")
    doctor.add_argument("--config", type=Path, metavar="FILE", help="the gateway's settings, in TOML")
    doctor.add_argument("--data", metavar="DIR", help="its data folder (default: as the settings have it)")
    doctor.add_argument(
        "--seconds",
        type=float,
        default=SECONDS_MAX,
        metavar="N",
        help=f"to look through databases for at most (default {SECONDS_MAX:.0f})",
    )
    doctor.add_argument("--json", action="store_true", help="for scripts")
    doctor.set_defaults(run=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    """Exit codes: 0 nothing is wrong, 1 something is: at least one finding is an error."""
    settings: Settings | None = None
    wrong: list[Finding] = []
    try:
        settings = from_environment(arguments.config, {"data": arguments.data})
        wrong = start_findings(settings)
    except SettingsError as error:
        wrong = [Finding(Severity.ERROR, SETTINGS, str(error), "correct it, then look again")]
    path = data_from_environment(arguments.data) if settings is None else settings.data_path
    machine, folder = look_at_machine(path), look_at_folder(path, arguments.seconds)
    tls, engine = ((), ()) if settings is None else (look_at_tls(settings), look_at_engine(settings))
    readable = None if any(finding.about == SETTINGS for finding in wrong) else settings
    found = by_severity([*wrong, *findings(machine, folder, tls, readable, engine)])
    if arguments.json:
        print(json.dumps({"versions": machine.versions, "findings": [asdict(finding) for finding in found]}, indent=2))
    else:
        _say(machine, folder, found)
    return 1 if any(finding.severity is Severity.ERROR for finding in found) else 0


def _say(machine: Machine, folder: Folder, found: Sequence[Finding]) -> None:
    print("  ".join(f"{name} {said}" for name, said in machine.versions.items()))
    runs = "a gateway runs on it" if folder.is_held else "no gateway runs on it"
    print(f"{printable(folder.path)}: {runs}\n")
    print_findings(found)
    if not found:
        print("nothing is wrong")


def print_findings(found: Sequence[Finding]) -> None:
    for finding in found:
        print(f"{finding.severity.upper():8} {finding.about}: {printable(finding.matter)}")
        print(f"{'':8} {printable(finding.remedy)}")
