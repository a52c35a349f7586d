"""Sign-in as a whole: who has members, their passkeys, the authorization server and the page of invitations.

Members of spaces sign in where spaces are on, members of tenants where this gateway makes its own tokens; both only
where BASE is known and can have passkeys. Why one of them is off is said here once, and kept for whoever asks later.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial

import structlog

from actors.member.members import Members
from actors.node.moment import Moment
from gateway.identity.members.feature import join_feature, members_feature
from gateway.identity.members.fleet_world import FleetWorld
from gateway.identity.oauth.feature import oauth_feature
from gateway.identity.oauth.joined_worlds import JoinedWorlds
from gateway.identity.oauth.passkey_sign_in import CeremonySignIn
from gateway.identity.oauth.resource_rules import MCP, Resources
from gateway.identity.oauth.settings import OAuthSettings
from gateway.identity.oauth.worlds import Worlds
from gateway.identity.passkeys.ceremony_rules import Ceremonies
from gateway.identity.passkeys.page_script import PASSKEY_SCRIPT
from gateway.identity.passkeys.relying_party import RelyingParty, UnfitBaseError
from gateway.main.data_folder import DataFolder
from gateway.main.feature import Feature
from gateway.main.public_base import PublicBase

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class FleetSignInOff(Enum):
    """Why members of tenants cannot sign in here: for the log, and for operators."""

    OWN_JWKS = "Tokens come from the issuer whose keys are in access.jwks, so this gateway signs nobody in for a fleet."
    NO_BASE = "http.public_url is not set, and http.listen is not an address of this machine alone."
    NO_PASSKEYS = "http.public_url cannot have passkeys: it has to be https with a domain, or http on localhost."
    NO_MCP = "MCP is switched off (mcp.enabled)."

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class SignIn:
    features: tuple[Feature, ...]
    fleet_off: FleetSignInOff | None
    has_server: bool = False

    def issues_for(self, path: str) -> bool:
        """Whether there is an authorization server that issues tokens for the endpoint at this path."""
        return self.has_server and (path == MCP or self.fleet_off is None)


def can_have_passkeys(base: PublicBase) -> bool:
    try:
        RelyingParty.of(base())
    except UnfitBaseError:
        return False
    return True


def sign_in(
    folder: DataFolder,
    members: Members | None,
    space_world: Worlds | None,
    ceremonies: Ceremonies,
    settings: OAuthSettings,
    base: PublicBase | None,
    key: bytes,
    new_id: Callable[[], str],
    now: Callable[[], Moment],
    is_of_console: Callable[[bytes], bool] = lambda _: False,
    *,
    has_mcp: bool,
    logs: bool,
) -> SignIn:
    """`members` is None where tokens come from elsewhere, `space_world` where spaces are off or cannot have members,
    `base` where nobody knows it. `key` is the gateway's, for ids of registered clients.
    `is_of_console`: whether a passkey is an operator's. `logs`: a line for each request of sign-in."""
    off = _fleet_off(members, base, has_mcp=has_mcp)
    if off is not None:
        log.info("fleet_sign_in_off", reason=off.word)
    features: tuple[Feature, ...] = () if members is None else (members_feature(members),)
    if members is not None:
        folder.verifier.know_grants(members.standing, partial(_is_ours, base))
        for grant_id in filter(folder.verifier.is_revoked, list(members.standing)):  # while no gateway ran
            members.end_soon(grant_id)
    if not has_mcp:
        return SignIn(features, off)
    kinds: dict[str, Worlds] = {}
    if members is not None and base is not None and off is None:  # asked first: nobody else's passkey may hide these
        kinds["fleet"] = FleetWorld(members, folder.issuer, folder.verifier, base, new_id, now)
    if space_world is not None:
        kinds["space"] = space_world
    if base is None or not kinds:
        return SignIn(features, off)

    def party() -> RelyingParty:
        return RelyingParty.of(base())

    worlds = JoinedWorlds(**kinds)
    passkeys = CeremonySignIn(ceremonies, party, worlds, now, is_of_console)
    oauth = oauth_feature(worlds, passkeys, settings, base, base.local, key, PASSKEY_SCRIPT, now, logs=logs)
    if members is None or off is not None:
        return SignIn((*features, oauth), off, has_server=True)
    join = join_feature(members, worlds, ceremonies, party, settings, base, PASSKEY_SCRIPT, now, is_of_console)
    return SignIn((*features, oauth, join), off, has_server=True)


def _fleet_off(members: Members | None, base: PublicBase | None, *, has_mcp: bool) -> FleetSignInOff | None:
    if members is None:
        return FleetSignInOff.OWN_JWKS
    if not has_mcp:
        return FleetSignInOff.NO_MCP
    if base is None:
        return FleetSignInOff.NO_BASE
    return None if can_have_passkeys(base) else FleetSignInOff.NO_PASSKEYS


def _is_ours(base: PublicBase | None, resource: str) -> bool:
    """Of an audience: whether it is the address of an endpoint of this gateway."""
    return base is not None and Resources(base(), base.local()).path_of(resource) is not None
