"""Which application a request is for, by the host that it names, and what servers ask about its paths beforehand.

One process serves two worlds side by side: the main application, and sites whose content strangers have written. They
share listeners and nothing else, so a request is dispatched before a single rule by path is asked: limits of bodies,
upgrades and forms of refusals belong to an application. What a host is, sites say (`SitesAt`); that depends on settings
alone, never on what has been published, so that whoever has read a head may remember the answer with it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from gateway.net.asgi import App
from gateway.net.refusal_form import FormOf, RefusalForm, device_form_only


def _never(_: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Application:
    app: App
    body_bytes_max: Callable[[str], int]
    """By path: a request with a longer body is told 413."""
    takes_upgrade: Callable[[str], bool] = _never
    """By path: whether the application takes WebSocket upgrades itself, by adoption; else they are hypercorn's."""
    form_of: FormOf = device_form_only
    """By path: how a refusal is said there."""


class NoSite(Enum):
    MAIN = auto()  # the main application's, as every host that no rule of sites names
    UNCLEAR = auto()  # two readers could take it for different hosts: 400


SitesAt: TypeAlias = Callable[[bytes], Application | NoSite]  # of a Host that has the form of one


class Applications:
    def __init__(self, main: Application, sites: SitesAt | None = None) -> None:
        """Without `sites`, every host is the main application's."""
        self.main = main
        self._sites = sites

    def at(self, host: bytes | None) -> Application | None:
        """`host` as it came, with its port; None: the request names none, as HTTP/1.0 may. Returns None for 400."""
        if self._sites is None or host is None:
            return self.main
        found = self._sites(host)
        if isinstance(found, Application):
            return found
        return self.main if found is NoSite.MAIN else None

    def form_at(self, host: bytes | None, path: str) -> RefusalForm | None:
        """How a refusal is said there, if it is known only what a head seems to say."""
        return (self.at(host) or self.main).form_of(path)
