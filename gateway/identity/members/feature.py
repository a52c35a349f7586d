"""What members of tenants need of a running gateway: their clock, and, where people can sign in, their page."""

from collections.abc import Callable
from pathlib import Path

from actors.member.members import Members
from actors.node.moment import Moment
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage
from actors.supervision.supervisor import Supervisor
from gateway.identity.members import ASSETS, STATIC
from gateway.identity.members.join_routes import JOIN, JoinRoutes
from gateway.identity.members.operations import JOINING
from gateway.identity.oauth.settings import OAuthSettings
from gateway.identity.oauth.worlds import Worlds
from gateway.identity.passkeys.ceremony_rules import Ceremonies
from gateway.identity.passkeys.relying_party import RelyingParty
from gateway.main.feature import Feature
from gateway.net.echo_refusal import say
from gateway.net.rates import Rate
from gateway.net.refusal_form import RefusalForm
from gateway.pages.assets import Assets


def members_feature(members: Members) -> Feature:
    def start(supervisor: Supervisor) -> None:
        supervisor.start(ChildSpec(name="members", run=members.run, kind=Kind.PERMANENT, stage=Stage.CORE))

    return Feature(start=start)


def join_feature(
    members: Members,
    worlds: Worlds,
    ceremonies: Ceremonies,
    party: Callable[[], RelyingParty],
    settings: OAuthSettings,
    base: Callable[[], str],
    passkey_script: Path,
    now: Callable[[], Moment],
    is_known_elsewhere: Callable[[bytes], bool] = lambda _: False,
) -> Feature:
    """`worlds` are all that there are, but for who is known elsewhere: no credential is of two. `passkey_script` is the
    module `passkey.js`."""
    requests = Rate(settings.requests_burst, settings.requests_per_s)
    begun = Rate(settings.ceremonies_burst, settings.ceremonies_per_min / 60)

    def is_taken(credential_id: bytes) -> bool:
        return worlds.find(credential_id) is not None or is_known_elsewhere(credential_id)

    assets = Assets(ASSETS, STATIC, passkey_script)
    join = JoinRoutes(members, ceremonies, party, is_taken, base, requests, begun, now)
    operations = {**JOINING, **assets.operations}
    return Feature({**join.routes, **assets.routes}, operations=operations, refusal_form=_form_at)


def _form_at(path: str) -> RefusalForm | None:
    return say if path == JOIN or path.startswith(f"{JOIN}/") else None
