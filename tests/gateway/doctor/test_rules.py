"""From facts to findings, at every border."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.doctor.certificate_rules import certificate_findings
from gateway.doctor.facts import Certificate, Clock, Database, Disk, Folder, Leafs, Machine, Mode
from gateway.doctor.finding import Finding, Severity
from gateway.doctor.finding_rules import TLS_DAYS_MIN, by_severity, findings
from gateway.doctor.folder_rules import CA_DAYS_MIN, GIB, MIB, folder_findings
from gateway.doctor.machine_rules import machine_findings
from gateway.doctor.settings_rules import other_settings, settings_findings
from gateway.main.settings import Settings, load

DAY_MS, NOW_MS = 86_400_000, 1_795_000_000_000
ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
GOOD_CLOCK = Clock(NOW_MS, True, 10, NOW_MS)
MACHINE = Machine(GOOD_CLOCK, 1_000_000)
WHOLE = Folder("data", is_there=True, is_whole=True)
WANTED = 20_000 + 20_000 + 10_000 + 512


def severities(found: Any, about: str | None = None) -> list[Severity]:
    listed: list[Finding] = list(found)
    for finding in listed:
        assert finding.matter
        assert finding.remedy, "a finding without a remedy is a complaint"
        assert not finding.matter.endswith(".")
    return [finding.severity for finding in listed if about in (None, finding.about)]


def test_healthy_gateway_has_no_findings() -> None:
    disk = Disk(100 * GIB, 200 * GIB, 10**6, 2 * 10**6)
    mode = Mode("data/token.key", 0o600, is_ours=True, is_key=True)
    ca = Certificate("ca", NOW_MS - DAY_MS, NOW_MS + 3000 * DAY_MS)
    folder = replace(
        WHOLE, answers=True, is_held=True, disk=disk, modes=(mode,), ca=ca, leafs=Leafs(5, 0, 0),
        databases=(Database("log.sqlite", 4, 4, True, 16 * MIB),),
    )  # fmt: skip
    tls = (Certificate("http.tls_certificate", 0, NOW_MS + 60 * DAY_MS),)
    assert findings(MACHINE, folder, tls, Settings()) == []


def test_the_worst_comes_first_and_otherwise_the_order_stays() -> None:
    mixed = [
        Finding(severity, name, "m", "r")
        for severity, name in ((NOTE, "a"), (ERROR, "b"), (WARNING, "c"), (ERROR, "d"))
    ]
    assert [finding.about for finding in by_severity(mixed)] == ["b", "d", "c", "a"]


# ---- the machine -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clock", "expected"),
    [
        (GOOD_CLOCK, []),
        (Clock(NOW_MS), []),
        (Clock(NOW_MS, True, 1_000), []),
        (Clock(NOW_MS, True, 1_001), [WARNING]),
        (Clock(NOW_MS, False, 16_000), [WARNING]),
        (Clock(NOW_MS, newest_event_ms=NOW_MS + 60_000), []),
        (Clock(NOW_MS, newest_event_ms=NOW_MS + 60_001), [ERROR]),
        (Clock(NOW_MS, newest_event_ms=0), []),
        (Clock(NOW_MS, False, None, NOW_MS + DAY_MS), [ERROR, WARNING]),
    ],
)
def test_clock(clock: Clock, expected: list[Severity]) -> None:
    assert severities(machine_findings(replace(MACHINE, clock=clock), None)) == expected


@pytest.mark.parametrize(
    ("files_max", "expected"),
    [(WANTED, []), (WANTED - 1, [WARNING]), (1_024, [WARNING]), (1_023, [ERROR])],
)
def test_file_limit(files_max: int, expected: list[Severity]) -> None:
    assert severities(machine_findings(replace(MACHINE, files_max=files_max), Settings())) == expected
    assert severities(machine_findings(replace(MACHINE, files_max=files_max), None)) == []


def test_file_limit_that_is_enough_for_lower_limits_is_enough() -> None:
    small = load(None, {}, {"listener.nodes_max": 100, "stream.streams_max": 100, "door.connections_max": 100})
    assert severities(machine_findings(replace(MACHINE, files_max=812), small)) == []
    assert severities(machine_findings(replace(MACHINE, files_max=811), small)) == [ERROR]


@pytest.mark.parametrize(("sqlite", "expected"), [((3, 37, 0), []), ((3, 36, 9), [ERROR]), ((4, 0, 0), [])])
def test_sqlite(sqlite: tuple[int, int, int], expected: list[Severity]) -> None:
    assert severities(machine_findings(replace(MACHINE, sqlite=sqlite), None)) == expected


# ---- the folder ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        (WHOLE, []),
        (Folder("data"), [NOTE]),
        (Folder("data", is_there=True), [NOTE]),
        (Folder("data", is_there=True, is_half_restored=True), [ERROR]),
        (replace(WHOLE, is_held=True, answers=True), []),
        (replace(WHOLE, is_held=True, answers=None), []),
        (replace(WHOLE, is_held=True, answers=False), [ERROR]),
    ],
)
def test_state_of_the_folder(folder: Folder, expected: list[Severity]) -> None:
    assert severities(folder_findings(folder, NOW_MS)) == expected


@pytest.mark.parametrize(
    ("disk", "expected"),
    [
        (Disk(2 * GIB, 1000 * GIB, 1, 1), []),
        (Disk(2 * GIB - 1, 1000 * GIB, 1, 1), [WARNING]),
        (Disk(2 * GIB - 1, 10 * GIB, 1, 1), []),
        (Disk(GIB, 11 * GIB, 1, 1), [WARNING]),
        (Disk(200 * MIB, 100 * GIB, 1, 1), [WARNING]),
        (Disk(200 * MIB - 1, 100 * GIB, 1, 1), [ERROR]),
        (Disk(100 * MIB, GIB, 1, 1), [WARNING]),
        (Disk(0, 0, 0, 0), [ERROR]),
        (Disk(100 * GIB, 200 * GIB, 0, 0), []),
        (Disk(100 * GIB, 200 * GIB, 10, 100), []),
        (Disk(100 * GIB, 200 * GIB, 9, 100), [WARNING]),
        (Disk(100 * GIB, 200 * GIB, 2, 100), [WARNING]),
        (Disk(100 * GIB, 200 * GIB, 1, 100), [ERROR]),
    ],
)
def test_disk(disk: Disk, expected: list[Severity]) -> None:
    assert severities(folder_findings(replace(WHOLE, disk=disk), NOW_MS)) == expected


@pytest.mark.parametrize(
    ("mode", "is_ours", "is_key", "expected"),
    [
        (0o700, True, False, []),
        (0o600, True, True, []),
        (0o755, True, False, [WARNING]),
        (0o640, True, True, [ERROR]),
        (0o604, True, True, [ERROR]),
        (0o620, True, True, [ERROR]),
        (0o600, False, True, [WARNING]),
        (0o644, False, True, [ERROR, WARNING]),
    ],
)
def test_permissions(mode: int, is_ours: bool, is_key: bool, expected: list[Severity]) -> None:
    found = list(folder_findings(replace(WHOLE, modes=(Mode("x", mode, is_ours, is_key),)), NOW_MS))
    assert severities(found) == expected


@pytest.mark.parametrize(
    ("begins_days", "ends_days", "expected"),
    [
        (-1, 14, []),
        (-1, 13.99, [WARNING]),
        (-1, 0, [WARNING]),
        (-1, -0.01, [ERROR]),
        (0.01, 100, [ERROR]),
        (0, 100, []),
    ],
)
def test_certificate(begins_days: float, ends_days: float, expected: list[Severity]) -> None:
    certificate = Certificate("x", NOW_MS + round(begins_days * DAY_MS), NOW_MS + round(ends_days * DAY_MS))
    assert severities(certificate_findings(certificate, NOW_MS, TLS_DAYS_MIN, "renew it")) == expected
    assert severities(findings(MACHINE, WHOLE, (certificate,), None)) == expected


def test_ca_has_to_outlive_the_certificates_of_nodes() -> None:
    for days, expected in ((CA_DAYS_MIN, []), (CA_DAYS_MIN - 1, [WARNING]), (-1, [ERROR])):
        ca = Certificate("ca", 0, NOW_MS + days * DAY_MS)
        assert severities(folder_findings(replace(WHOLE, ca=ca), NOW_MS)) == expected


@pytest.mark.parametrize(
    ("leafs", "expected"),
    [(Leafs(0, 0, 0), []), (Leafs(3, 1, 0), [WARNING]), (Leafs(3, 0, 1), [WARNING]), (Leafs(3, 1, 2), [WARNING] * 2)],
)
def test_certificates_of_nodes(leafs: Leafs, expected: list[Severity]) -> None:
    assert severities(folder_findings(replace(WHOLE, leafs=leafs), NOW_MS)) == expected


@pytest.mark.parametrize(
    ("database", "expected"),
    [
        (Database("log.sqlite", 4, 4, True), []),
        (Database("log.sqlite", 5, 4, True), [ERROR]),
        (Database("log.sqlite", 3, 4, True), [NOTE]),
        (Database("log.sqlite", -4, 4, True), [NOTE]),
        (Database("log.sqlite", None, 4, False), [ERROR]),
        (Database("log.sqlite", 4, 4, False), [ERROR]),
        (Database("log.sqlite", 4, 4, None), [NOTE]),
        (Database("log.sqlite", 4, 4, True, GIB), []),
        (Database("log.sqlite", 4, 4, True, GIB + 1), [WARNING]),
        (Database("log.sqlite", 5, 4, None, GIB + 1), [ERROR, NOTE, WARNING]),
    ],
)
def test_database(database: Database, expected: list[Severity]) -> None:
    assert severities(folder_findings(replace(WHOLE, databases=(database,)), NOW_MS)) == expected


# ---- settings --------------------------------------------------------------------------------------------------------

OUT = {"http.listen": "0.0.0.0:8420", "devices.listen": "127.0.0.1:8421"}
HTTPS = {**OUT, "http.tls_certificate": "c.pem", "http.public_url": "https://gw.example", "admin.listen": "unix:/x"}
PROXIED = {"http.public_url": "https://gw.example", "http.trusted_proxies": ["127.0.0.1/32"], "admin.listen": "unix:/x"}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, []),
        (HTTPS, []),
        (PROXIED, []),
        ({"http.listen": "localhost:1", "devices.listen": "[::1]:2"}, []),
        ({**HTTPS, "devices.listen": "0.0.0.0:1"}, [("tls", WARNING)]),
        ({**HTTPS, "devices.listen": "0.0.0.0:1", "devices.tls_certificate": "c.pem"}, []),
        ({**HTTPS, "devices.listen": "0.0.0.0:1", "devices.trusted_proxies": ["10.0.0.0/8"]}, []),
        (OUT, [("tls", WARNING), ("public_url", WARNING), ("operators", NOTE)]),
        ({**HTTPS, "http.public_url": "http://gw.example"}, [("public_url", ERROR)]),
        ({"http.public_url": "http://gw.example", "admin.listen": "unix:/x"}, [("public_url", WARNING)]),
        ({"http.public_url": "http://localhost:8420", "admin.listen": "unix:/x"}, []),
        ({"http.public_url": "https://gw.example", "admin.listen": "unix:/x"}, [("public_url", WARNING)]),
        ({**HTTPS, "http.trusted_proxies": ["0.0.0.0/0"]}, [("proxies", ERROR)]),
        ({**HTTPS, "devices.trusted_proxies": ["::/0"]}, [("proxies", ERROR)]),
        ({**HTTPS, "http.trusted_proxies": ["0.0.0.0/1"]}, []),
        ({**HTTPS, "admin.listen": None}, [("operators", NOTE)]),
        ({**HTTPS, "http.metrics_open": True}, [("operators", WARNING)]),
        ({"http.metrics_open": True}, []),
        ({**HTTPS, "mcp.relax_origin": True}, [("mcp", WARNING)]),
        ({"mcp.relax_origin": True}, []),
        ({**HTTPS, "echo.enabled": True}, []),
        ({**HTTPS, "echo.enabled": True, "projects.api_bearer_token": "b" * 40}, [("sites", WARNING)]),
        ({**HTTPS, "echo.enabled": True, "projects.site_suffix": "sites.gw.example"}, [("sites", WARNING)]),
        ({**HTTPS, "projects.site_suffix": "sites.gw.example"}, []),
        (
            {
                **HTTPS,
                "echo.enabled": True,
                "projects.site_suffix": "else.example",
                "projects.api_bearer_token": "b" * 40,
            },
            [],
        ),
    ],
)
def test_settings(flags: dict[str, Any], expected: list[tuple[str, Severity]]) -> None:
    found = list(settings_findings(load(None, {}, flags)))
    assert [(finding.about, finding.severity) for finding in found] == expected
    severities(found)


def test_gateway_that_runs_with_other_settings_is_told_of() -> None:
    settings = load(None, {}, {"http.listen": "127.0.0.1:1", "devices.listen": "127.0.0.1:0"})
    assert severities(other_settings(settings, {})) == []
    assert severities(other_settings(settings, {"http": "127.0.0.1:1", "devices": "127.0.0.1:777"})) == []
    assert severities(other_settings(settings, {"http": "127.0.0.1:2"})) == [NOTE]
    assert severities(findings(MACHINE, replace(WHOLE, listens={"http": "127.0.0.1:2"}), (), settings)) == [NOTE]


def test_settings_that_cannot_be_read_are_passed_over() -> None:
    assert findings(MACHINE, replace(WHOLE, listens={"http": "127.0.0.1:2"}), (), None) == []
