"""BASE: the address under which clients and browsers reach this gateway, as links, documents and passkeys have it."""

import ipaddress

from gateway.main.settings import SettingsError


class PublicBase:
    """How clients reach this gateway, without a slash at its end: as the operator says, or on this very machine."""

    def __init__(self, public_url: str | None, host: str, port: int, scheme: str) -> None:
        """`port` is 0 until the gateway listens, if it is to pick one."""
        self.port = port
        self._public_url = public_url
        self._scheme = scheme
        if not is_known(public_url, host):
            raise SettingsError(
                "echo.enabled needs http.public_url, such as https://gw.example: links to spaces are made of it, and "
                "http.listen is not an address of this machine alone"
            )

    def __call__(self) -> str:
        return self._public_url or self.local()

    def local(self) -> str:
        """How clients on this very machine reach it."""
        return f"{self._scheme}://localhost:{self.port}"


def is_known(public_url: str | None, host: str) -> bool:
    """Whether there is a BASE for a gateway that listens on this host."""
    return public_url is not None or is_loopback(host)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
