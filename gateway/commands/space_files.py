"""`heliograph space put | get | files`: files of a space, in pieces, never whole in memory. They are not sealed: what
is in a file is its owner's business, in an encrypted room too."""

import argparse
import hashlib
import http.client
import json
import mimetypes
import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from gateway.commands.ending import cleaned_when_ended
from gateway.commands.parsing import CommandError, Subparsers, print_rows, printable
from gateway.commands.space_arguments import add_action, given_input, output, space_of
from gateway.commands.space_client import SpaceRefusedError, objects, unreachable
from gateway.commands.space_file_rules import is_media_type, local_name, part_end, part_head, which
from gateway.commands.space_response import BoundedResponse

PIECE_BYTES = 64 * 1024
FILE_BYTES_MAX = 1024**3  # of a download, also where its size is said; a larger one is refused, and none of it is kept
FILE_S_MAX = 3600.0  # for a download; then it counts as one that did not arrive


def add(actions: Subparsers) -> None:
    put = add_action(actions, "put", _put, "upload a file")
    put.add_argument("file", metavar="FILE", help="- for standard input")
    put.add_argument("--name", help="what it is called there (default: the file's own name)")
    put.add_argument("--type", metavar="TYPE", help="its media type (default: by its name)")
    put.add_argument("--json", action="store_true", help="the file's document, for scripts")
    get = add_action(actions, "get", _get, "download a file")
    get.add_argument("file", metavar="FILE", help="its file_id, or its name")
    get.add_argument("--out", metavar="PATH", help="where to (default: its name, here; - for standard output)")
    get.add_argument("--force", action="store_true", help="overwrite an existing file")
    files = add_action(actions, "files", _files, "list the files")
    files.add_argument("--json", action="store_true", help="their documents, for scripts")


def _files(arguments: argparse.Namespace) -> int:
    service, link = space_of(arguments)
    files = objects(service.ask("GET", f"{link.api}/files", wants="files")["files"])
    if arguments.json:
        print(json.dumps(files))
    else:
        columns = ("file_id", "name", "content_type", "size", "created_at")
        print_rows([{column: printable(str(file.get(column, ""))) for column in columns} for file in files])
    return 0


# ---- in --------------------------------------------------------------------------------------------------------------


def _put(arguments: argparse.Namespace) -> int:
    service, link = space_of(arguments)
    name = arguments.name or ("file" if arguments.file == "-" else Path(arguments.file).name)
    content_type = arguments.type or mimetypes.guess_type(name)[0] or "application/octet-stream"
    if not is_media_type(content_type):
        raise CommandError("--type is a media type such as image/png")
    boundary = secrets.token_hex(16)
    head, end = part_head(boundary, name, content_type), part_end(boundary)
    with _source(arguments.file) as (file, size):
        headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
        if size is not None:
            headers["content-length"] = str(len(head) + size + len(end))
        body = _body(head, end, file, size, _progress(size))
        with service.open("POST", f"{link.api}/files", body, headers) as response:
            document = service.document(response, "file_id")
    if arguments.json:
        print(json.dumps(document))
    else:
        print(f"{printable(str(document['file_id']))}  {printable(str(document.get('name', name)))}")
    return 0


@contextmanager
def _source(path: str) -> Iterator[tuple[IO[bytes], int | None]]:
    """With its size, if that can be known before."""
    if path == "-":
        yield given_input(), None
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115  # closed below
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None
    with file:
        status = os.fstat(file.fileno())
        # Files of a kernel say 0 and have more.
        yield file, (status.st_size or None) if stat.S_ISREG(status.st_mode) else None


def _body(
    head: bytes, end: bytes, file: IO[bytes], size: int | None, progress: Callable[[int], None]
) -> Iterator[bytes]:
    """As many bytes as were promised, however the file changes meanwhile."""
    yield head
    done = 0
    while size is None or done < size:
        try:
            piece = file.read(PIECE_BYTES if size is None else min(PIECE_BYTES, size - done))
        except OSError as error:
            raise CommandError(f"cannot read the file: {error.strerror}") from None
        if not piece:
            break
        done += len(piece)
        progress(done)
        yield piece
    if size is not None and done < size:
        raise CommandError("the file became shorter while it was sent: try again once nobody writes to it")
    yield end


# ---- out -------------------------------------------------------------------------------------------------------------


def _get(arguments: argparse.Namespace) -> int:
    service, link = space_of(arguments)
    files = objects(service.ask("GET", f"{link.api}/files", wants="files")["files"])
    file = _chosen(files, arguments.file)
    with (
        cleaned_when_ended(),
        service.open("GET", f"{link.api}/files/{quote(file['file_id'], safe='')}", None, {"accept": "*/*"}) as response,
    ):
        if arguments.out == "-":
            _receive(response, file, output(), service.base)
            return 0
        target = Path(arguments.out or local_name(str(file.get("name", ""))))
        with _reserved(target, force=arguments.force) as part:
            _receive(response, file, part, service.base)
    print(printable(str(target)))
    return 0


def _chosen(files: list[dict[str, Any]], wanted: str) -> dict[str, Any]:
    found = which(files, wanted)
    if len(found) > 1:
        raise CommandError("several files have that name: give the file_id; `heliograph space files` lists it")
    if not found:
        raise SpaceRefusedError("file_not_found", "The space has no file with this id or name.")
    return found[0]


@contextmanager
def _reserved(target: Path, *, force: bool) -> Iterator[IO[bytes]]:
    """A file that has this name once it is whole. If it never is, nothing is left of it."""
    is_reserved = False
    try:
        if not force:
            target.open("xb").close()  # so that nobody else takes the name meanwhile
            is_reserved = True
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".heliograph-", delete=False) as part:
            try:
                yield part.file
                part.flush()
                Path(part.name).chmod(0o666 & ~_umask())
                Path(part.name).replace(target)
                is_reserved = False
            except BaseException:
                Path(part.name).unlink(missing_ok=True)
                raise
    except FileExistsError:
        raise CommandError(f"{target} is there already: --force overwrites it, --out names another") from None
    except OSError as error:
        raise CommandError(f"cannot write {target}: {error.strerror}") from None
    finally:
        if is_reserved:
            target.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _receive(response: BoundedResponse, file: dict[str, Any], into: IO[bytes], base: str) -> None:
    """Raises CommandError if it is not what the service said it would be."""
    size = file["size"] if isinstance(file.get("size"), int) else None
    bytes_max = FILE_BYTES_MAX if size is None else size
    progress, digest, done = _progress(size), hashlib.sha256(), 0
    response.allow(FILE_S_MAX)
    while done <= bytes_max <= FILE_BYTES_MAX:
        try:
            piece = response.read(min(PIECE_BYTES, bytes_max - done + 1))
        except (OSError, http.client.HTTPException) as error:
            raise CommandError(unreachable(base, error)) from None
        if not piece:
            break
        done += len(piece)
        digest.update(piece)
        into.write(piece)
        progress(done)
    if max(done, bytes_max) > FILE_BYTES_MAX:
        raise CommandError(f"the file is larger than this command takes ({FILE_BYTES_MAX >> 20} MiB)")
    if (size is not None and done != size) or file.get("sha256", digest.hexdigest()) != digest.hexdigest():
        raise CommandError("the file did not arrive whole: try again")


def _progress(size: int | None) -> Callable[[int], None]:
    """Shown on a terminal, where it changes."""
    if not sys.stderr.isatty():
        return lambda _: None
    shown = ""

    def progress(done: int) -> None:
        nonlocal shown
        mib = f"{done / 2**20:.1f} MiB"
        text = mib if not size else f"{100 * done // size:3} %  {mib}"
        if text != shown:
            shown = text
            with suppress(OSError):
                print(f"\r{text}", end="\n" if done == size else "", file=sys.stderr, flush=True)

    return progress
