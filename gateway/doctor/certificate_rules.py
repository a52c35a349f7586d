"""When a certificate is a trouble, and how large one. Pure."""

from collections.abc import Iterator

from gateway.doctor.facts import Certificate
from gateway.doctor.finding import Finding, Severity

DAY_MS = 86_400_000


def certificate_findings(certificate: Certificate, now_ms: int, days_min: int, remedy: str) -> Iterator[Finding]:
    """`days_min`: what should be left of its life."""
    left_ms = certificate.not_after_ms - now_ms
    if now_ms < certificate.not_before_ms:
        matter, severity = "is not valid yet", Severity.ERROR
        remedy = "see that the clock is right, or wait"
    elif left_ms < 0:
        matter, severity = f"ended {-left_ms // DAY_MS} days ago", Severity.ERROR
    elif left_ms < days_min * DAY_MS:
        matter, severity = f"ends in {left_ms // DAY_MS} days", Severity.WARNING
    else:
        return
    yield Finding(severity, "certificates", f"{certificate.name} {matter}", remedy)
