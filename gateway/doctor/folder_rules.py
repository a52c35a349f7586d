"""What the state of a data folder means: its disk, its files, its certificates, its databases. Pure."""

from collections.abc import Iterator

from gateway.doctor.certificate_rules import certificate_findings
from gateway.doctor.facts import Database, Disk, Folder, Leafs, Mode
from gateway.doctor.finding import Finding, Severity

GIB, MIB = 1024**3, 1024**2
DISK_FREE_RATIO_MIN, DISK_FREE_BYTES_MIN = 0.10, 2 * GIB  # with both below: a warning
DISK_FULL_RATIO, DISK_FULL_BYTES = 0.02, 200 * MIB  # with both below: an error
CA_DAYS_MIN = 400  # else certificates of nodes, which have a year, outlive it
LEAF_DAYS_SOON = 30  # a node renews its own before half of its life: one that is left with so little does not
WAL_BYTES_MAX = 1 * GIB  # more than a burst leaves: somebody reads, and keeps it from being folded in


def folder_findings(folder: Folder, now_ms: int) -> Iterator[Finding]:
    yield from _state(folder)
    if folder.disk is not None:
        yield from _disk(folder.disk)
    for mode in folder.modes:
        yield from _mode(mode)
    if folder.ca is not None:
        remedy = "make a new data folder and enroll the nodes again, while the old gateway still serves them"
        yield from certificate_findings(folder.ca, now_ms, CA_DAYS_MIN, remedy)
    if folder.leafs is not None:
        yield from _leafs(folder.leafs)
    for database in folder.databases:
        yield from _database(database)


def _state(folder: Folder) -> Iterator[Finding]:
    if folder.is_half_restored:
        yield Finding(
            Severity.ERROR,
            "data folder",
            f"a backup was being restored into {folder.path}, and that did not end",
            "empty the folder and restore again",
        )
    elif not folder.is_there:
        yield Finding(
            Severity.NOTE, "data folder", f"there is no {folder.path} yet", "the first start of a gateway makes it"
        )
    elif not folder.is_whole:
        yield Finding(
            Severity.NOTE,
            "data folder",
            f"no gateway has finished its first start in {folder.path}",
            "start one there, or name another folder with --data",
        )
    if folder.answers is False:
        yield Finding(
            Severity.ERROR,
            "gateway",
            "a gateway holds the folder and does not answer where it said that it listens",
            "read its log; if it hangs, stop it and start it again",
        )


def _disk(disk: Disk) -> Iterator[Finding]:
    room = disk.free_bytes / max(1, disk.total_bytes)
    inodes = 1.0 if disk.total_inodes == 0 else disk.free_inodes / disk.total_inodes
    if (room < DISK_FULL_RATIO and disk.free_bytes < DISK_FULL_BYTES) or inodes < DISK_FULL_RATIO:
        severity = Severity.ERROR
    elif (room < DISK_FREE_RATIO_MIN and disk.free_bytes < DISK_FREE_BYTES_MIN) or inodes < DISK_FREE_RATIO_MIN:
        severity = Severity.WARNING
    else:
        return
    yield Finding(
        severity,
        "disk",
        f"the disk of the data folder has {disk.free_bytes // MIB} MiB and {inodes:.0%} of its inodes free",
        "make room, or move the folder: with a full disk every call is refused",
    )


def _mode(mode: Mode) -> Iterator[Finding]:
    if mode.mode & 0o077:
        yield Finding(
            Severity.ERROR if mode.is_key else Severity.WARNING,
            "permissions",
            f"{mode.name} is open to others (mode {mode.mode:04o})",
            f"chmod go= {mode.name}",
        )
    if not mode.is_ours:
        yield Finding(
            Severity.WARNING,
            "permissions",
            f"{mode.name} belongs to another user than the one who asks",
            "run the gateway and its commands as the user who owns the folder",
        )


def _leafs(leafs: Leafs) -> Iterator[Finding]:
    if leafs.ended:
        yield Finding(
            Severity.WARNING,
            "certificates",
            f"the certificates of {leafs.ended} of {leafs.nodes} nodes have ended: these cannot connect",
            "`heliograph node renew NODE --out DIR` for those that are still wanted, `node revoke` for the others",
        )
    if leafs.ending_soon:
        yield Finding(
            Severity.WARNING,
            "certificates",
            f"the certificates of {leafs.ending_soon} of {leafs.nodes} nodes end within {LEAF_DAYS_SOON} days",
            "see why these nodes do not renew by themselves: `heliograph nodes` says when each was last seen",
        )


def _database(database: Database) -> Iterator[Finding]:
    name = database.name
    if database.form is None or database.is_whole is False:
        remedy = "stop the gateway, keep a copy of the folder, and restore a backup"
        yield Finding(Severity.ERROR, "databases", f"{name} is damaged", remedy)
        return
    if database.form > database.known_form:
        yield Finding(
            Severity.ERROR,
            "databases",
            f"{name} is of form {database.form}, and this version reads up to {database.known_form}",
            "install a newer version, or restore a backup that this one has made",
        )
    elif database.form != database.known_form:
        yield Finding(
            Severity.NOTE,
            "databases",
            f"{name} is of form {database.form}; the next start brings it to {database.known_form}",
            "take a backup first: earlier versions do not read the new form",
        )
    if database.is_whole is None:
        yield Finding(
            Severity.NOTE,
            "databases",
            f"{name} was too large to be looked through in time",
            "stop the gateway, or copy the folder, and look again with --seconds",
        )
    if database.wal_bytes > WAL_BYTES_MAX:
        yield Finding(
            Severity.WARNING,
            "databases",
            f"the write-ahead file of {name} has {database.wal_bytes // MIB} MiB",
            "end the program that reads the database for long; a restart of the gateway empties the file",
        )
