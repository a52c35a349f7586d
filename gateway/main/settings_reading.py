"""How settings are read: from a TOML file, then the environment, then flags; the last one wins.

Which settings there are is not decided here: a gateway has its own (`settings`), a node no more than its log. So this
module needs nothing but what a node has installed.
"""

import math
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from gateway.main.command_variables import FOR_COMMANDS
from gateway.observe.log_output import LogSettings

PREFIX = "HELIOGRAPH_"

S = TypeVar("S", bound=msgspec.Struct)


class SettingsError(Exception):
    """A mistake in a file, a variable or a flag; the text says which and what to do."""


class _OfNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    log: LogSettings = msgspec.field(default_factory=LogSettings)


def log_from_environment() -> LogSettings:
    """For a node, which has no other settings of ours; what else is in the environment is not its business."""
    mine = {name: value for name, value in os.environ.items() if name.startswith(f"{PREFIX}LOG_")}
    return read(_OfNode, None, mine, {}).log


def read(
    settings: type[S],
    file: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, Any],
    bare: Mapping[str, str] | None = None,
) -> S:
    """`flags` by dotted name, such as `http.listen`; those that are None were not given. `bare` has the dotted names of
    variables that go without the prefix too. Raises SettingsError."""
    bare = bare or {}
    values: dict[str, Any] = {}
    if file is not None:
        try:
            values = tomllib.loads(file.read_text())
        except OSError as error:
            raise SettingsError(f"cannot read {file}: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{file} is not TOML: {error}") from error
        except RecursionError as error:
            raise SettingsError(f"{file} is nested too deep") from error
        except ValueError:  # its words are of Python
            raise SettingsError(f"{file} has a number with thousands of digits") from None
    for name, dotted in bare.items():
        if name in environment:
            _put(values, dotted, _read(environment[name], _kind(dotted, settings)))
    for name, value in environment.items():
        if name.startswith(PREFIX) and name not in FOR_COMMANDS and name not in bare:
            dotted = _dotted(name.removeprefix(PREFIX).lower(), settings)
            _put(values, dotted, _read(value, _kind(dotted, settings)))
    for name, value in flags.items():
        if value is not None:
            _put(values, name, value)
    _refuse_unknown(values, settings)
    _refuse_nul(values)
    try:
        read_as = msgspec.convert(values, settings)
    except msgspec.ValidationError as error:
        raise SettingsError(f"a setting is wrong: {error}") from error
    _refuse_nan(values)
    return read_as


def _refuse_unknown(values: Mapping[str, Any], settings: type, place: str = "") -> None:
    """msgspec passes over what a dataclass does not have, and a mistyped limit would go unnoticed."""
    known = get_type_hints(settings)
    for name, value in values.items():
        if name not in known:
            raise SettingsError(f"a setting is wrong: there is no {place}{name}; there are {', '.join(sorted(known))}")
        section = _section(known[name])
        if isinstance(value, dict) and section is not None:
            _refuse_unknown(value, section, f"{place}{name}.")


def _refuse_nul(values: Mapping[str, Any], place: str = "") -> None:
    """No setting has a use for one, and whoever opened a file of such a name would crash."""
    for name, value in values.items():
        if isinstance(value, dict):
            _refuse_nul(value, f"{place}{name}.")
        elif isinstance(value, str) and "\0" in value:
            raise SettingsError(f"a setting is wrong: {place}{name} has a NUL character")


def _refuse_nan(values: Mapping[str, Any], place: str = "") -> None:
    """It is within every bound, and whoever waited for so many seconds would crash."""
    for name, value in values.items():
        if isinstance(value, dict):
            _refuse_nan(value, f"{place}{name}.")
        elif isinstance(value, float) and math.isnan(value):
            raise SettingsError(f"a setting is wrong: {place}{name} is not a number")


def _dotted(name: str, settings: type) -> str:
    """Of a variable's name, which has underscores between sections and within names."""
    known = get_type_hints(settings)
    first, _, rest = name.partition("_")
    section = _section(known.get(first))
    return f"{first}.{_dotted(rest, section)}" if name not in known and section is not None and rest else name


def _kind(dotted: str, settings: type) -> Any:
    first, _, rest = dotted.partition(".")
    place: Any = settings
    while rest:
        place = _section(get_type_hints(place).get(first))
        if place is None:
            return Any
        first, _, rest = rest.partition(".")
    return get_type_hints(place).get(first, Any)


def _section(kind: Any) -> type | None:
    """What a setting is made of, if it is a section, one that may be absent too."""
    made_of = [one for one in (get_args(kind) or (kind,)) if hasattr(one, "__annotations__")]
    return made_of[0] if made_of else None


def _read(text: str, kind: Any) -> Any:
    """A variable's value as it would stand in the file; where that does not fit, as text or as a boolean's word."""
    try:
        value = tomllib.loads(f"v = {text}")["v"]
    except (ValueError, RecursionError):  # no TOML, or a number or a depth beyond all
        value = text
    for candidate, strict in ((value, True), (text, kind is not bool)):
        try:
            return msgspec.convert(candidate, kind, strict=strict)
        except msgspec.ValidationError:
            continue
    return value  # refused with all the others, by its name


def _put(values: dict[str, Any], dotted: str, value: Any) -> None:
    *sections, name = dotted.split(".")
    target: Any = values
    for section in sections:
        target = target.setdefault(section, {})
        if not isinstance(target, dict):
            raise SettingsError(f"{section} is a section, not a value")
    target[name] = value
