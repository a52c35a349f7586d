"""TLS of our listeners: a context from the PEM files that the settings name, and one to reach a listener with.

Handshakes are the listeners'.
"""

import re
import ssl
from collections.abc import Sequence
from pathlib import Path

from gateway.main.settings import SettingsError

_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_OTHER_BLOCK = re.compile("-----BEGIN (?:X509|TRUSTED) CERTIFICATE-----")


def server_context(
    section: str, certificate: str | None, key: str | None, alpn: Sequence[str] = ()
) -> ssl.SSLContext | None:
    """None when no certificate is set. Raises SettingsError, naming the setting that is wrong."""
    if certificate is None:
        if key is not None:
            raise SettingsError(f"{section}.tls_key is set and {section}.tls_certificate is not: give both, or neither")
        return None
    for name, path in (("tls_certificate", certificate), ("tls_key", key)):
        try:
            Path(path or certificate).read_bytes()  # OpenSSL would not say which of the two it could not read
        except OSError as error:
            raise SettingsError(f"{section}.{name}: cannot read {path or certificate}: {error.strerror}") from error
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # Whoever starts a gateway may not be there to type a password: an encrypted key is a mistake.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:  # an ssl.SSLError is an OSError; so is a file that has gone since
        reason = getattr(error, "reason", None) or error
        raise SettingsError(
            f"{section}.tls_certificate and {section}.tls_key are PEM files, the certificate with its chain "
            f"and the key that belongs to it, without a password; OpenSSL says: {reason}"
        ) from error
    # OpenSSL takes some that clients which are given the certificate do not.
    if _OTHER_BLOCK.search(_read(certificate)) or not _BLOCK.search(_read(certificate)):
        raise SettingsError(
            f"{section}.tls_certificate: write each certificate as a block `BEGIN CERTIFICATE`, "
            "as `openssl x509 -in FILE` prints it"
        )
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def leaf(certificate: str) -> str:
    """The listener's own certificate, the first one in its file."""
    return leaf_of(_read(certificate))


def leaf_of(text: str) -> str:
    found = _BLOCK.search(text)
    assert found is not None  # `server_context` has read it
    return found[0] + "\n"


def text_of(content: bytes) -> str:
    """Of a PEM file. Whatever stands between its blocks is for people, and in any encoding."""
    return content.decode("ascii", "replace")


def _read(certificate: str) -> str:
    return text_of(Path(certificate).read_bytes())


def client_context(only: str) -> ssl.SSLContext:
    """For whoever knows the listener by its certificate: no other one will do, and its name does not matter."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=only)
    return context
