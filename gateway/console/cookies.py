"""The console's two cookies: one names the session, one binds a passkey ceremony to the browser that began it.

Both are `__Host-`: no other host can set them, and browsers send them to this host alone. Ports do not count, so two
gateways on one `localhost` share them.
"""

from gateway.net.exchange import Exchange

SESSION = "__Host-heliograph_console"
CEREMONY = "__Host-heliograph_passkey"


def cookie_of(exchange: Exchange, name: str) -> str | None:
    """Two of one name, as no browser sends them, are none. Over HTTP/2 there may be a header for each cookie."""
    headers = [value.decode("latin-1") for key, value in exchange.scope["headers"] if key == b"cookie"]
    pairs = [part.strip().partition("=") for header in headers for part in header.split(";")]
    values = [value for known, _, value in pairs if known == name and value]
    return values[0] if len(values) == 1 else None


def set_cookie(name: str, value: str, life_s: int) -> dict[bytes, bytes]:
    """`life_s` 0 takes it away."""
    cookie = f"{name}={value}; Max-Age={life_s}; Secure; HttpOnly; SameSite=Strict; Path=/"
    return {b"set-cookie": cookie.encode()}
