"""Credentials of NATS in each of their forms, and a server that takes them."""

import base64
import binascii
import json
from pathlib import Path

import pytest
import trio
from nacl.signing import SigningKey

from gateway.engine.connection import Connection, NotConnectedError
from gateway.engine.credentials import BadCredentialsError, Nkey, read_credentials
from gateway.engine.nats_thread import ConnectionSettings
from gateway.engine.server_run import ServerRun
from gateway.engine.syncing import is_always_synced

SEED = bytes(range(32))


def written(folder: Path, text: str) -> Path:
    file = folder / "credentials"
    file.write_text(text)
    return file


def seed_text(seed: bytes = SEED) -> str:
    body = bytes([0x95, 0x00]) + seed
    checksum = binascii.crc_hqx(body, 0).to_bytes(2, "little")
    return base64.b32encode(body + checksum).decode().rstrip("=")


def test_a_token_and_a_password_are_one_line(tmp_path: Path) -> None:
    assert read_credentials(written(tmp_path, "t0ken\n")).token == "t0ken"
    both = read_credentials(written(tmp_path, "me:pass:word\n"))
    assert (both.user, both.password, both.token) == ("me", "pass:word", None)


def test_a_seed_and_a_credentials_file_have_the_same_key(tmp_path: Path) -> None:
    seed = seed_text()
    assert seed.startswith("SU")
    plain = read_credentials(written(tmp_path, seed))
    file = f"-----BEGIN NATS USER JWT-----\nabc.def.ghi\n------END NATS USER JWT------\n\n{seed}\n"
    whole = read_credentials(written(tmp_path, file))
    assert plain.nkey == whole.nkey == Nkey(SEED)
    assert (plain.jwt, whole.jwt) == (None, "abc.def.ghi")
    assert Nkey(SEED).public.startswith("U")
    signature = base64.b64decode(Nkey(SEED).sign("nonce"))
    SigningKey(SEED).verify_key.verify(b"nonce", signature)


@pytest.mark.parametrize("text", ["", "two words", f"{seed_text()[:-1]}A", "-----BEGIN NATS USER JWT-----"])
def test_anything_else_is_refused_and_not_repeated(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadCredentialsError) as refused:
        read_credentials(written(tmp_path, text))
    assert not text or text not in str(refused.value)


class _Accounts(ServerRun):
    """With an account of its own for the system, and an NKey for everybody else."""

    def _configuration(self) -> str:
        configuration = json.loads(super()._configuration())
        del configuration["authorization"]
        configuration["accounts"] = {
            "APP": {"users": [{"nkey": Nkey(SEED).public}], "jetstream": "enabled"},
            "SYS": {"users": [{"user": "sys", "password": "pw"}]},
        }
        configuration["system_account"] = "SYS"
        return json.dumps(configuration)


async def test_a_server_takes_an_nkey_and_tells_the_system_account_that_it_syncs(tmp_path: Path) -> None:
    server = _Accounts(tmp_path)
    await server.start()
    try:
        with trio.fail_after(30):
            async with await Connection.open(ConnectionSettings((server.url,), nkey=Nkey(SEED))) as link:
                assert await is_always_synced(link) is None  # it is not of the system account
            system = ConnectionSettings((server.url,), user="sys", password="pw")
            async with await Connection.open(system) as link:
                assert await is_always_synced(link) is True
            with pytest.raises(NotConnectedError, match="refuses"):
                await Connection.open(ConnectionSettings((server.url,), nkey=Nkey(bytes(32)), open_s_max=2))
    finally:
        await server.stop()
