"""TLS of our listeners: a context from the PEM files that the settings name, and one to reach a listener with.

Handshakes are the listeners'.
"""

import re
import ssl
from collections.abc import Sequence
from pathlib import Path

from gateway.main.settings import SettingsError

_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def server_context(
    section: str, certificate: str | None, key: str | None, alpn: Sequence[str] = ()
) -> ssl.SSLContext | None:
    """None when no certificate is set. Raises SettingsError, naming the setting that is wrong."""
    if certificate is None:
        if key is not None:
            raise SettingsError(f"{section}.tls_key is set and {section}.tls_certificate is not: give both, or neither")
        return None
    read = {}
    for name, path in (("tls_certificate", certificate), ("tls_key", key)):
        try:
            read[name] = Path(path or certificate).read_bytes()  # OpenSSL would not say which of the two it cannot read
        except OSError as error:
            raise SettingsError(f"{section}.{name}: cannot read {path or certificate}: {error.strerror}") from error
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # Whoever starts a gateway may not be there to type a password: an encrypted key is a mistake.
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise SettingsError(
            f"{section}.tls_certificate and {section}.tls_key are PEM files, the certificate with its chain "
            f"and the key that belongs to it, without a password; OpenSSL says: {reason}"
        ) from error
    if _CERTIFICATE.search(text_of(read["tls_certificate"])) is None:  # OpenSSL knows other names for one
        raise SettingsError(f"{section}.tls_certificate has no -----BEGIN CERTIFICATE-----")
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def leaf(certificate: str) -> str:
    """The listener's own certificate, the first one in its file."""
    return leaf_of(text_of(Path(certificate).read_bytes()))


def text_of(pem: bytes) -> str:
    """Around what is PEM there may be anything, in whatever encoding."""
    return pem.decode("ascii", "replace")


def leaf_of(text: str) -> str:
    found = _CERTIFICATE.search(text)
    assert found is not None  # `server_context` has read it
    return found[0] + "\n"


def client_context(only: str) -> ssl.SSLContext:
    """For whoever knows the listener by its certificate: no other one will do, and its name does not matter."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=only)
    return context
