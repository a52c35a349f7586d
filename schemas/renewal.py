"""What a node signs to renew its identity (`POST /devices/renew`), for both sides: who asks and who answers. Pure.

The signature is that of the key the node has now, over its next public key. Whether its certificate may vouch for that,
and what comes of it, is for the gateway.
"""

from typing import Any

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from schemas.canonical import canonical

CONTEXT = b"heliograph-node-renewal-v1\n"
"""In front of what is signed: no signature made for anything else, such as a manifest, can be one of a renewal."""
SIGNED = ("iat", "node_id", "nonce", "public_key")
IAT_TOLERANCE_S = 300  # either way from the gateway's clock; a request stamped further off is refused


def request_of(key: SigningKey, *, node_id: str, kid: str, public_key: bytes, iat: int, nonce: bytes) -> dict[str, Any]:
    """A body that fits `node.renew.request@1.0.0`, signed with the key that the certificate `kid` is for."""
    body = {"node_id": node_id, "kid": kid, "public_key": public_key.hex(), "iat": iat, "nonce": nonce.hex()}
    return body | {"signature": key.sign(_form(body)).signature.hex()}


def is_signed_by(public_key: bytes, body: dict[str, Any]) -> bool:
    """Whether this key signed it. `body` fits its schema."""
    try:
        VerifyKey(public_key).verify(_form(body), bytes.fromhex(body["signature"]))
    except (BadSignatureError, ValueError):
        return False
    return True


def _form(body: dict[str, Any]) -> bytes:
    return CONTEXT + canonical({name: body[name] for name in SIGNED})
