"""The settings of access: whose tokens count."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AccessSettings:
    jwks: str | None = None  # the path of a JWKS file; None: the gateway makes its tokens itself
    issuer: str = "heliograph"  # the `iss` of tokens that the keys of that file sign
    audience: str = "heliograph"  # one of their `aud`
    reload_s: float = 2.0  # between looks at the file; a change counts once two looks have seen the same
