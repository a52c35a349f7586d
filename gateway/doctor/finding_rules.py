"""All findings of all rules, the worst first. Pure."""

from gateway.doctor.certificate_rules import certificate_findings
from gateway.doctor.engine_rules import engine_findings
from gateway.doctor.facts import Certificate, EngineServer, Folder, Machine
from gateway.doctor.finding import Finding, Severity
from gateway.doctor.folder_rules import folder_findings
from gateway.doctor.machine_rules import machine_findings
from gateway.doctor.settings_rules import other_settings, settings_findings
from gateway.main.settings import Settings

TLS_DAYS_MIN = 14  # a certificate that was not renewed by then will not be: something has failed


def findings(
    machine: Machine,
    folder: Folder,
    tls: tuple[Certificate, ...],
    settings: Settings | None,
    engine: tuple[EngineServer, ...] = (),
) -> list[Finding]:
    """Without settings, because they are wrong, nothing is said of them."""
    now_ms = machine.clock.now_ms
    found = [*machine_findings(machine, settings), *folder_findings(folder, now_ms)]
    for certificate in tls:
        found += certificate_findings(certificate, now_ms, TLS_DAYS_MIN, "renew it, then send the gateway SIGHUP")
    found += engine_findings(engine)
    if settings is not None:
        found += [*settings_findings(settings), *other_settings(settings, folder.listens)]
    return by_severity(found)


def by_severity(found: list[Finding]) -> list[Finding]:
    order = list(Severity)
    return sorted(found, key=lambda finding: order.index(finding.severity))
