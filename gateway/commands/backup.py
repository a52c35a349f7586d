"""`heliograph backup`: the data folder as one file, while a gateway runs on it or not."""

import argparse
import gzip
import json
import os
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import msgspec

from actors.log.sqlite_files import sync_folder
from gateway.backup.archive import Archive, Pieces
from gateway.backup.gathering import BackupError, Wish, gather, remove_staging
from gateway.backup.manifest_rules import Manifest
from gateway.backup.restoring import check
from gateway.commands.ending import cleaned_when_ended
from gateway.commands.parsing import CommandError, Subparsers
from gateway.commands.reach import Operator, add_data, ask, data_path, now_ms
from gateway.identity.tokens import OperatorScope
from gateway.main.data_folder import DataFolder

LIFE_S = 3600  # of the token that a backup is fetched with: it has to be good until its end
MEDIA_TYPE = "application/x-tar"
WAIT_S = 600.0  # for the next bytes: before the first ones, databases are copied
GZIP_LEVEL = 6


def add(commands: Subparsers) -> None:
    backup = commands.add_parser("backup", help="take a backup of the data folder, while a gateway runs or not")
    backup.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="a new file, or a folder for one (default: heliograph-backup-TIME.tar, here)",
    )
    backup.add_argument("--gzip", action="store_true", help="compress it")
    backup.add_argument(
        "--spaces", action="store_true", help="with echo spaces and their keys: what is in them outlives their end"
    )
    backup.add_argument("--no-audit", dest="audit", action="store_false", help="without the kept audit")
    backup.add_argument("--json", action="store_true", help="what is in it, for scripts")
    add_data(backup)
    backup.set_defaults(run=_backup)


def _backup(arguments: argparse.Namespace) -> int:
    path, wish = data_path(arguments), Wish(arguments.spaces, arguments.audit)
    out = _target(arguments.out, is_gzip=arguments.gzip)

    def direct(folder: DataFolder) -> Manifest:
        return _take(folder, wish, out, is_gzip=arguments.gzip)

    def remote(operator: Operator) -> Manifest:
        return _fetch(operator, wish, out, is_gzip=arguments.gzip)

    manifest = ask(path, direct, remote, *OperatorScope, life_s=LIFE_S)
    _say(out, manifest, as_json=arguments.json)
    return 0


def _target(wanted: Path | None, *, is_gzip: bool) -> Path:
    name = f"heliograph-backup-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar{'.gz' if is_gzip else ''}"
    out = Path(name) if wanted is None else wanted / name if wanted.is_dir() else wanted
    _refuse_existing(out)
    if not out.parent.is_dir():
        raise CommandError(f"there is no folder {out.parent}: make it, or name another one with --out")
    return out


def _refuse_existing(out: Path) -> None:
    if out.exists() or out.is_symlink():
        raise CommandError(f"{out} exists: a backup replaces no file, name another one with --out")


def _take(folder: DataFolder, wish: Wish, out: Path, *, is_gzip: bool) -> Manifest:
    """Of a folder that nobody else holds. Copies, if there have to be any, lie beside the backup."""
    staging = out.with_name(f".{out.name}.{os.getpid()}.copies")

    def pieces() -> Pieces:
        gathered = gather(folder.path, staging, wish, is_live=False)
        yield from Archive(gathered, version("heliograph"), now_ms()).pieces()

    try:
        return _keep(out, pieces(), is_gzip=is_gzip)
    finally:
        remove_staging(staging)


def _fetch(operator: Operator, wish: Wish, out: Path, *, is_gzip: bool) -> Manifest:
    pieces = operator.fetch("/admin/backup", msgspec.to_builtins(wish), MEDIA_TYPE, WAIT_S)
    return _keep(out, pieces, is_gzip=is_gzip)


def _keep(out: Path, pieces: Pieces, *, is_gzip: bool) -> Manifest:
    """Under its name once it is whole, durable and read again; else there is nothing of it. Raises CommandError."""
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    with cleaned_when_ended():
        try:
            fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                _write(file, pieces, is_gzip=is_gzip)
                file.flush()
                os.fsync(fd)
            manifest = check(part)
            _refuse_existing(out)
            part.rename(out)
            sync_folder(out.parent)
        except BackupError as error:
            raise CommandError(str(error)) from None
        except OSError as error:
            raise CommandError(f"cannot write {out} ({error.strerror}): there is nothing of the backup") from None
        finally:
            part.unlink(missing_ok=True)
    return manifest


def _write(file: IO[bytes], pieces: Pieces, *, is_gzip: bool) -> None:
    if not is_gzip:
        file.writelines(pieces)
        return
    with gzip.GzipFile(filename="", mode="wb", compresslevel=GZIP_LEVEL, fileobj=file) as inside:
        for piece in pieces:
            inside.write(piece)


def _say(out: Path, manifest: Manifest, *, as_json: bool) -> None:
    told = {"file": str(out), "bytes": out.stat().st_size, **summary(manifest)}
    if as_json:
        print(json.dumps(told))
        return
    print(f"{out}: {len(manifest.members)} files, {told['bytes']} bytes; {spoken(manifest)}")
    for line in warned(manifest):
        print(line)
    if manifest.left_out:
        print(f"left out: {manifest.left_out} files that this version does not know")
    print("It has the keys of this gateway: keep it as you keep those.")


def summary(manifest: Manifest) -> dict[str, Any]:
    """What is said of a backup for scripts."""
    fields = ("version", "made_at_ms", "log_id", "has_spaces", "has_audit", "left_out")
    return {"files": len(manifest.members), **{name: getattr(manifest, name) for name in fields}}


def warned(manifest: Manifest) -> list[str]:
    """What somebody may not expect of a backup."""
    if manifest.log_id is not None:
        return []
    return ["It has no command log: the gateway never ran, or its log is on NATS. Back that up with the tools of NATS."]


def spoken(manifest: Manifest) -> str:
    has = (("echo spaces", manifest.has_spaces), ("the audit", manifest.has_audit))
    return ", ".join(f"{'with' if is_there else 'without'} {what}" for what, is_there in has)
