"""What a check is: a rule of the wire in one sentence, the section it is from, and the script that tries it."""

from collections.abc import Callable
from dataclasses import dataclass

from actors.kit.gateway_rules import KitGateway
from actors.kit.steps import Script
from actors.kit.verdicts import Blocked, Broken, NotApplicable, Verdict


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    section: str  # of docs/reference/device-wire.md: "2.4", or "A" for an appendix
    must: str  # what has to hold
    script: Callable[[KitGateway], Script[None]]
    is_slow: bool = False  # it takes half a minute or more by its nature, and can be left out

    def tried(self, gateway: KitGateway) -> Script[Verdict]:
        """The script, and what came of it."""
        try:
            yield from self.script(gateway)
        except Broken as broken:
            gateway.is_suspect = True
            return Verdict.of(broken)
        except (NotApplicable, Blocked) as untried:
            return Verdict.of(untried)
        return Verdict.of(None)


def check(section: str, *, is_slow: bool = False) -> Callable[[Callable[[KitGateway], Script[None]]], Check]:
    """Makes a check of a script: its name is the function's, its docstring says what must hold."""

    def made(script: Callable[[KitGateway], Script[None]]) -> Check:
        assert script.__doc__, "a check says what must hold"
        return Check(script.__name__.replace("_", "-"), section, " ".join(script.__doc__.split()), script, is_slow)

    return made
