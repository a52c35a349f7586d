"""`heliograph node enroll`: give a node its identity. Being one (`node run`) is in `node_run`."""

import argparse
import time
from pathlib import Path

from nacl.signing import SigningKey
from ulid import ULID

from actors.device.identity import DeviceIdentity
from actors.device.identity_files import TOKEN_FILE
from gateway.commands import node_run
from gateway.commands.parsing import CommandError, Subparsers
from gateway.commands.reach import Operator, add_data, ask, checked_node_id, checked_tenant, data_path
from gateway.main.data_folder import NO_TOKENS, DataFolder
from schemas.certificates import Leaf


def add(commands: Subparsers) -> None:
    actions = commands.add_parser("node", help="enroll a node, or be one").add_subparsers(
        required=True, metavar="ACTION"
    )
    enroll = actions.add_parser("enroll", help="give a node its key, certificate and token")
    enroll.add_argument("--tenant", required=True)
    enroll.add_argument("--node-id", help="a lower-case ULID (default: a new one)")
    enroll.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder that goes to the node")
    add_data(enroll)
    enroll.set_defaults(run=_enroll)
    node_run.add(actions)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _enroll(arguments: argparse.Namespace) -> int:
    path, tenant, out = data_path(arguments), checked_tenant(arguments.tenant), arguments.out
    node_id = checked_node_id(arguments.node_id or str(ULID()).lower())

    def direct(folder: DataFolder) -> DeviceIdentity:
        return folder.enroll(node_id, tenant, str(ULID()), wall_ms())

    def remote(operator: Operator) -> DeviceIdentity:
        made = operator.post("/admin/enroll", {"tenant": tenant, "node_id": node_id}, "certificate")
        leaf = Leaf.from_der(bytes.fromhex(made["certificate"]))
        return DeviceIdentity(SigningKey(bytes.fromhex(made["key"])), leaf, made["token"] or "")

    identity = ask(path, direct, remote)
    try:
        identity.save(out)
    except OSError as error:
        raise CommandError(
            f"cannot write to {out} ({error.strerror}): enroll a node again with another --out"
        ) from None
    if identity.token:
        print(f"node {node_id} of {tenant} is enrolled; take {out} to the node and run there:")
    else:
        print(f"node {node_id} of {tenant} has a key and a certificate, and no token. {NO_TOKENS}")
        print(f"Ask it for one of class device_runtime, sub {node_id}, tenant {tenant}, scope device:connect,")
        print(f"and write it to {out / TOKEN_FILE}. Then take {out} to the node and run there:")
    print(f"  heliograph node run {out} --gateway ws://GATEWAY:8421/devices/connect")
    return 0
