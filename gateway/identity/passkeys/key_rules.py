"""Which public keys are taken: ES256 on P-256, EdDSA on Ed25519, RS256 with 2048 to 4096 bits. Pure.

A COSE key names algorithm, kind and curve separately, and the library takes any two that do not contradict its code:
here each algorithm has one kind and one curve. What is left to the library is whether the numbers are a key.
"""

from collections.abc import Mapping

from gateway.identity.passkeys.faults import PasskeyFault

ES256, EDDSA, RS256 = -7, -8, -257
ALGORITHMS = (ES256, EDDSA, RS256)
"""In the order in which browsers are asked for them: ES256 is what nearly all have."""

_KTY, _ALG = 1, 3
_CRV, _X, _Y = -1, -2, -3
_N, _E = -1, -2
_OKP, _EC2, _RSA = 1, 2, 3
_P256, _ED25519 = 1, 6
_COORDINATE_BYTES = 32
_RSA_BYTES_MIN, _RSA_BYTES_MAX = 256, 512  # shorter is weak, longer costs us more than a login is worth
_RSA_EXPONENT = b"\x01\x00\x01"


def key_fault(key: object) -> PasskeyFault | None:
    """None: a key of the right shape, with no member too many."""
    if not isinstance(key, Mapping):
        return PasskeyFault.MALFORMED
    algorithm = key.get(_ALG)
    if algorithm not in ALGORITHMS:
        return PasskeyFault.ALGORITHM_UNSUPPORTED
    if algorithm == RS256:
        return None if _is_rsa(key) else PasskeyFault.KEY_UNUSABLE
    kind, curve = (_EC2, _P256) if algorithm == ES256 else (_OKP, _ED25519)
    coordinates = {_X, _Y} if algorithm == ES256 else {_X}
    is_key = (
        key.keys() == {_KTY, _ALG, _CRV, *coordinates}
        and (key[_KTY], key[_CRV]) == (kind, curve)
        and all(isinstance(key[one], bytes) and len(key[one]) == _COORDINATE_BYTES for one in coordinates)
    )
    return None if is_key else PasskeyFault.KEY_UNUSABLE


def _is_rsa(key: Mapping[object, object]) -> bool:
    modulus = key.get(_N)
    return (
        key.keys() == {_KTY, _ALG, _N, _E}
        and key[_KTY] == _RSA
        and key[_E] == _RSA_EXPONENT
        and isinstance(modulus, bytes)
        and _RSA_BYTES_MIN <= len(modulus) <= _RSA_BYTES_MAX
        and modulus[0] >= 0x80  # as many bits as its bytes say
        and modulus[-1] % 2 == 1
    )
