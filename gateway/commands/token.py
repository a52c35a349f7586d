"""`heliograph token mint | revoke`."""

import argparse
import json
import re
import uuid
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from ulid import ULID

from gateway.commands.parsing import CommandError, Subparsers
from gateway.commands.reach import (
    OPERATOR_TOKEN_LIFE_S,
    Operator,
    add_data,
    ask,
    checked_tenant,
    data_path,
    need_tokens,
    now_ms,
)
from gateway.identity.operator_rules import MintRefused, judge_mint, needed_to_mint
from gateway.identity.tokens import Issuer, OperatorScope, Scope, TokenClass
from gateway.main.data_folder import DataFolder
from gateway.main.durations import duration_s

_SUBS = {
    TokenClass.AGENT_RUNTIME: "agent_<uuid> in lower case; leave it out for a new agent",
    TokenClass.DEVICE_RUNTIME: "a node's id; `heliograph nodes` lists them",
    TokenClass.OPERATOR: "a name of 1 to 128 printable characters",
}


def add(commands: Subparsers) -> None:
    actions = commands.add_parser("token", help="mint or revoke tokens").add_subparsers(required=True, metavar="ACTION")
    mint = actions.add_parser("mint", help="make a token and print it")
    mint.add_argument("--class", dest="token_class", choices=[c.value for c in TokenClass], default="agent_runtime")
    mint.add_argument("--sub", help="whom it speaks for (default: a new agent)")
    mint.add_argument("--tenant", required=True)
    mint.add_argument(
        "--scope",
        action="append",
        choices=[scope.value for scope in (*Scope, *OperatorScope)],
        metavar="SCOPE",
        help="may be given several times. "
        f"For agents and nodes: {', '.join(Scope)}. For operators, who need one at least: {', '.join(OperatorScope)}",
    )
    mint.add_argument("--life", default="1h", help="such as 10m, 12h, 30d (default 1h)")
    mint.add_argument("--json", action="store_true", help="token and jti, for scripts")
    add_data(mint)
    mint.set_defaults(run=_mint)
    revoke = actions.add_parser("revoke", help="refuse a token from now on, and end what it opened")
    revoke.add_argument("jti", help="its id, as `token mint --json` prints it")
    add_data(revoke)
    revoke.set_defaults(run=_revoke)


def _mint(arguments: argparse.Namespace) -> int:
    path, tenant = data_path(arguments), checked_tenant(arguments.tenant)
    token_class = TokenClass(arguments.token_class)
    is_agent = token_class is TokenClass.AGENT_RUNTIME
    sub = arguments.sub or (f"agent_{uuid.uuid4()}" if is_agent else "")
    life_s = duration_s(arguments.life)
    if life_s is None:
        raise CommandError("a life is a number and a unit, such as 10m, 12h or 30d")
    asked = arguments.scope or ([Scope.READ_ONLY] if is_agent else [])
    scopes = judge_mint(token_class, asked, 0, None)  # by the gateway once more, if one runs, for whoever asks it
    if isinstance(scopes, MintRefused):
        raise CommandError(f"{scopes.message} {scopes.suggested_fix}")
    need_tokens(path, f"ask it for a token of class {token_class} with this sub, tenant and scope")
    claims: dict[str, Any] = {"token_class": token_class, "sub": sub, "tenant": tenant, "life_s": life_s}
    try:  # as a rehearsal, so that what is wrong is told in one way, whoever mints
        rehearsal = Issuer(Ed25519PrivateKey.generate(), issuer="", audience="")
        rehearsal.mint(**claims, scopes=scopes, jti=str(ULID()), now_ms=now_ms())
    except ValueError:
        raise CommandError(f"--sub of a token of class {token_class} is {_SUBS[token_class]}") from None

    def direct(folder: DataFolder) -> Any:
        jti = str(ULID())
        return {"token": folder.mint(**claims, scopes=scopes, jti=jti, now_ms=now_ms()), "jti": jti}

    def remote(operator: Operator) -> Any:
        return operator.post("/admin/mint", {**claims, "scopes": scopes}, "token")

    # Whoever has the folder may mint operators of any life, and none outlives the token that asks for it.
    asks_for_s = OPERATOR_TOKEN_LIFE_S + (life_s if token_class is TokenClass.OPERATOR else 0)
    made = ask(path, direct, remote, *needed_to_mint(token_class, scopes), life_s=asks_for_s)
    print(json.dumps({**made, "sub": sub}) if arguments.json else made["token"])
    return 0


def _revoke(arguments: argparse.Namespace) -> int:
    if not re.fullmatch(r"[0-9A-HJKMNP-TV-Z]{26}", arguments.jti):
        raise CommandError("a jti is an upper-case ULID, as `token mint --json` prints it")
    ask(
        data_path(arguments),
        lambda folder: folder.revoke(arguments.jti),
        lambda operator: operator.post("/admin/revoke", {"jti": arguments.jti}, "revoked"),
        OperatorScope.TOKENS_MINT,
    )
    print(f"revoked {arguments.jti}")
    return 0
