"""Settings that are valid and yet unlikely to be what somebody wants. Pure.

What is plainly wrong the settings themselves refuse; whether files and ports can be had is looked at elsewhere.
"""

from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from urllib.parse import urlsplit

from gateway.doctor.finding import Finding, Severity
from gateway.main.public_base import is_loopback
from gateway.main.settings import UNIX, Address, Settings
from schemas.echo.site_labels import is_same_site


def settings_findings(settings: Settings) -> Iterator[Finding]:
    """Of settings whose addresses can be read."""
    http = Address.parse(settings.http.listen)
    yield from _in_the_clear(settings, http)
    yield from _public_url(settings, http)
    yield from _proxies(settings)
    yield from _operators(settings, http)
    yield from _spaces(settings)


def other_settings(settings: Settings, listens: Mapping[str, str]) -> Iterator[Finding]:
    """`listens`: where the gateway that runs on the folder does, by section."""
    for section, said in listens.items():
        address = Address.parse(getattr(settings, section).listen)
        if address.port and said != f"{address.host}:{address.port}":
            yield Finding(
                Severity.NOTE,
                "settings",
                f"the gateway on this folder was started with other settings: it has {said} for {section}.listen",
                "name its settings with --config, and set the same variables, to have those looked at",
            )


def _in_the_clear(settings: Settings, http: Address) -> Iterator[Finding]:
    """Where tokens could be read on the way."""
    for section, address in (("http", http), ("devices", Address.parse(settings.devices.listen))):
        of_section = getattr(settings, section)
        if is_loopback(address.host) or of_section.tls_certificate is not None or of_section.trusted_proxies:
            continue
        yield Finding(
            Severity.WARNING,
            "tls",
            f"{section}.listen is not an address of this machine alone, and nothing says that TLS is spoken before it",
            f"set {section}.tls_certificate and {section}.tls_key, or name the proxy that speaks TLS in "
            f"{section}.trusted_proxies",
        )


def _public_url(settings: Settings, http: Address) -> Iterator[Finding]:
    public_url = settings.http.public_url
    if public_url is None:
        if not is_loopback(http.host):
            yield Finding(
                Severity.WARNING,
                "public_url",
                "http.public_url is not set: MCP clients that use another name than the address are refused with 421",
                "set http.public_url to how clients reach the gateway, such as https://gw.example",
            )
        return
    url = urlsplit(public_url)
    has_tls = settings.http.tls_certificate is not None
    if url.scheme == "http" and has_tls:
        yield Finding(
            Severity.ERROR,
            "public_url",
            "http.public_url begins with http://, and the gateway speaks TLS there",
            "let http.public_url begin with https://",
        )
    elif url.scheme == "http" and not is_loopback(url.hostname or ""):
        yield Finding(
            Severity.WARNING,
            "public_url",
            "http.public_url begins with http://: tokens go in the clear, and browsers make no passkeys there",
            "serve TLS, by the gateway or a proxy, and let http.public_url begin with https://",
        )
    elif url.scheme == "https" and not has_tls and not settings.http.trusted_proxies:
        yield Finding(
            Severity.WARNING,
            "public_url",
            "http.public_url is https:// and TLS is spoken by a proxy that http.trusted_proxies does not name: all of "
            "its clients count as one address",
            "name the proxy's network in http.trusted_proxies",
        )


def _proxies(settings: Settings) -> Iterator[Finding]:
    for section in ("http", "devices"):
        networks = [ip_network(text) for text in getattr(settings, section).trusted_proxies]
        if any(network.prefixlen == 0 for network in networks):
            yield Finding(
                Severity.ERROR,
                "proxies",
                f"{section}.trusted_proxies has every address: any client can pretend to have any address",
                "name the networks of your proxies alone",
            )


def _operators(settings: Settings, http: Address) -> Iterator[Finding]:
    if is_loopback(http.host) and settings.http.public_url is None:
        return
    if settings.admin.listen is None:
        yield Finding(
            Severity.NOTE,
            "operators",
            "operators' routes (/admin, /metrics) share the agents' address; operators' tokens protect them",
            f'give them a listener of their own: admin.listen = "{UNIX}/run/heliograph/admin.sock"',
        )
    if settings.http.metrics_open:
        yield Finding(
            Severity.WARNING,
            "operators",
            "http.metrics_open lets anybody read /metrics",
            "leave it off and give Prometheus a token with fleet:read, or move /metrics with admin.listen",
        )
    if settings.mcp.relax_origin:
        yield Finding(
            Severity.WARNING,
            "mcp",
            "mcp.relax_origin lets pages of every site use /mcp",
            "it is for development: leave it off",
        )


def _spaces(settings: Settings) -> Iterator[Finding]:
    public_url = settings.http.public_url
    if not settings.echo.enabled or public_url is None:
        return
    host, suffix = urlsplit(public_url).hostname or "", settings.projects.site_suffix
    if is_same_site(host, suffix):
        yield Finding(
            Severity.WARNING,
            "sites",
            "projects.site_suffix shares a domain with http.public_url: browsers take both for one site",
            "serve sites under a domain of their own",
        )
    if suffix == "localhost" and settings.projects.api_bearer_token is not None and not is_loopback(host):
        yield Finding(
            Severity.WARNING,
            "sites",
            "projects.site_suffix is localhost: sites of projects can be seen on this machine alone",
            "set projects.site_suffix to a domain whose subdomains all lead to the gateway",
        )
