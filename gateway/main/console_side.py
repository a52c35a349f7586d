"""The console, joined to a gateway: where it is, and what the features beside it hand in for its pages."""

from gateway.console.origin_rules import ConsoleOff, browser_origin, is_secure
from gateway.main.public_base import PublicBase, is_known
from gateway.main.settings import Address, Settings, UnixAddress


class ConsoleOrigin:
    """The console's one origin. Its port is known once the gateway listens."""

    def __init__(self, base: PublicBase) -> None:
        self.base = base

    def __call__(self) -> str:
        return browser_origin(self.base()) or ""


def console_origin(
    settings: Settings, http: Address, admin: Address | UnixAddress | None, scheme: str
) -> ConsoleOrigin | ConsoleOff:
    """Where `/admin` is: `admin` None is at the public address."""
    if isinstance(admin, UnixAddress):
        return ConsoleOff.UNIX_SOCKET
    public_url = settings.admin.public_url or (settings.http.public_url if admin is None else None)
    listens = http if admin is None else admin
    if not is_known(public_url, listens.host):
        return ConsoleOff.NO_ORIGIN
    base = PublicBase(public_url, listens.host, listens.port, scheme)
    origin = browser_origin(base())
    if origin is None:
        return ConsoleOff.NO_ORIGIN
    return ConsoleOrigin(base) if is_secure(origin) else ConsoleOff.NOT_SECURE
