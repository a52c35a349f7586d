"""The section `[oauth]`: which redirects are taken, whether clients may register, and the limits of sign-in."""

import re
from dataclasses import dataclass

from gateway.identity.oauth.redirect_rules import RESERVED_SCHEMES

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,63}")
_HOST = re.compile(r"[a-z0-9._-]{1,253}")


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    registration: bool = True  # `POST /oauth/register`; without it 404, and its endpoint is not announced
    # Of applications on the client's own device, such as `cursor`; a redirect to any other is a 400 page.
    redirect_schemes: tuple[str, ...] = ()
    # To which a member of a fleet may be sent back, beside this very device; to another: `access_denied`.
    redirect_hosts: tuple[str, ...] = ()
    # ---- codes and offers, in memory
    code_s: float = 60.0  # in which a code must be used; then it is `invalid_grant`
    used_code_s: float = 3_600.0  # for which a used code is remembered; a second use in that time revokes its grant
    codes_max: int = 10_000  # not used yet, and as many used ones; then the oldest is forgotten
    offer_s: float = 300.0  # to accept other scopes than were asked for; then the person signs in again
    offers_max: int = 10_000  # at a time; then the oldest ends
    # ---- rates of one address, as a burst and what is refilled; above them 429. Of IPv6, a /64 is one address.
    requests_burst: int = 120  # to all of `/oauth`
    requests_per_s: float = 20.0
    ceremonies_burst: int = 10  # consent pages, each with a ceremony of its own
    ceremonies_per_min: float = 10.0
    registrations_burst: int = 10
    registrations_per_min: float = 10.0

    def __post_init__(self) -> None:
        for scheme in self.redirect_schemes:
            if scheme in RESERVED_SCHEMES or not _SCHEME.fullmatch(scheme):
                raise ValueError("oauth.redirect_schemes has schemes of applications, in lower case, such as cursor")
        if not all(map(_HOST.fullmatch, self.redirect_hosts)):
            raise ValueError("oauth.redirect_hosts has hosts in lower case, without port, such as claude.ai")
