"""`.echo-project`: which project a folder is published to. It holds the project's id, which is no secret, and no more.

It lies at the root of the repository, or beside the folder where there is none. So a repository has one project; for
several sites in one, each folder may have a file of its own: the nearest one counts.
"""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gateway.commands.parsing import CommandError
from gateway.commands.site_folder import repository_of

NAME = ".echo-project"
_BYTES_MAX = 256
_ID = re.compile("[A-Za-z0-9_-]{1,64}")  # of any instance; ours are ULIDs


def is_project_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def find(folder: Path) -> tuple[Path, str] | None:
    """The file that counts for this folder, and the id in it. Raises CommandError."""
    for place in _places(folder):
        file = place / NAME
        try:
            with file.open("rb") as content:
                text = content.read(_BYTES_MAX).decode(errors="replace").strip()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise CommandError(f"cannot read {file}: {error.strerror}") from None
        if not is_project_id(text):
            raise CommandError(f"{file} holds no project id: remove it, or name the project with --project")
        return file, text
    return None


def _places(folder: Path) -> Iterator[Path]:
    repository = repository_of(folder)
    yield folder
    for above in folder.parents:
        if folder == repository:
            return
        yield above
        if above == repository or repository is None:
            return


class NewFile:
    """The place of a file that is to be made: nobody else's is overwritten, and no half of one is ever there."""

    def __init__(self, folder: Path) -> None:
        """Raises CommandError where it could not be written, before there is anything to write."""
        repository = repository_of(folder)
        beside = folder if folder == Path.cwd() else folder.parent
        self.file = (beside if repository is None else repository) / NAME
        try:
            descriptor, self._part = tempfile.mkstemp(dir=self.file.parent, prefix=f"{NAME}.")
        except OSError as error:
            raise CommandError(
                f"cannot write {self.file}: {error.strerror}; make a project with `heliograph project create`, and "
                "name it with --project"
            ) from None
        self._part_file = os.fdopen(descriptor, "w")

    def keep(self, project_id: str) -> bool:
        """False: somebody else has made one meanwhile."""
        self._part_file.write(f"{project_id}\n")
        self._part_file.flush()
        os.fchmod(self._part_file.fileno(), 0o644)
        os.fsync(self._part_file.fileno())
        try:
            os.link(self._part, self.file)  # which never replaces anything
        except FileExistsError:
            return False
        except OSError as error:
            raise CommandError(
                f"cannot write {self.file}: {error.strerror}; the project is {project_id}: name it with --project"
            ) from None
        return True

    def close(self) -> None:
        self._part_file.close()
        with suppress(FileNotFoundError):
            Path(self._part).unlink()
