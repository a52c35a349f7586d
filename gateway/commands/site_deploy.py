"""Publishing a folder: what is there, what changed, and the uploads. For the command, and for the demo."""

import json
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from gateway.commands.parsing import CommandError
from gateway.commands.project_arguments import Place
from gateway.commands.project_client import ProjectApi
from gateway.commands.project_file import NewFile, find
from gateway.commands.site_plan_rules import Plan, Upload, plan
from gateway.commands.site_upload import Progress, Uploads, patiently
from gateway.commands.space_client import SpaceRefusedError
from schemas.echo.site_paths import is_site_path

NAME_CHARS_MAX = 80  # of a project


@dataclass(frozen=True, slots=True)
class Target:
    """The project that a folder is published to, and where that is written."""

    project: dict[str, Any]
    file: Path | None  # None: it was named


def existing_target(place: Place, folder: Path, project_id: str | None) -> Target | None:
    """None: the folder was never published. Raises CommandError, SpaceRefusedError."""
    found = None if project_id is not None else find(folder)
    if found is not None:
        file, project_id = found
    if project_id is None:
        return None
    try:
        return Target(place.api.project(project_id), None if found is None else file)
    except SpaceRefusedError as refused:
        if refused.word != "project_not_found" or found is None:
            raise
        raise CommandError(
            f"{place.base} has no project {project_id}, which {file} names: remove that file to make another, or give "
            "--url of the service that has it"
        ) from None


def new_target(place: Place, folder: Path, name: str | None, domain: str | None) -> Target:
    """A project of this folder, once: its id is written down before anything is published. Raises as above."""
    with closing(NewFile(folder)) as new:
        body = {"name": name or project_name(new.file.parent), **({} if domain is None else {"domain": domain})}
        project = place.api.create(body)
        if new.keep(project["project_id"]):
            return Target(project, new.file)
        place.api.delete(project["project_id"])
    other = existing_target(place, folder, None)
    if other is None:
        raise CommandError(f"{new.file} came and went meanwhile: try again")
    return other


def project_name(folder: Path) -> str:
    """As a service takes it: printable, and not too long."""
    kept = "".join(character for character in folder.name if character.isprintable()).strip()
    return kept[:NAME_CHARS_MAX].strip() or "site"


def room_object(project: dict[str, Any], path: str) -> Upload:
    """Where the room of a project is, for the pages of its site: a capability, which they are meant to have."""
    token, url = project.get("app_token"), project.get("websocket_url")
    if not isinstance(token, str) or not isinstance(url, str) or not url.endswith(f"/ws/s/{token}"):
        raise CommandError("the project's room has ended: `heliograph project book` gives it a new one")
    base = f"http{url.removeprefix('ws').removesuffix(f'/ws/s/{token}')}"
    told = {"base": base, "token": token, "websocket_url": url, "expires_at": project.get("expires_at")}
    content = json.dumps(told, indent=2).encode() + b"\n"
    return Upload(path, len(content), sha256(content).hexdigest(), content)


def planned(place: Place, project_id: str, uploads: Sequence[Upload], *, prunes: bool) -> Plan:
    """Raises CommandError, SpaceRefusedError."""
    listed = patiently(lambda: list(place.api.objects(project_id)), time.sleep)
    paths = ((one.get("path"), one.get("sha256")) for one in listed)
    published = {path: str(digest) for path, digest in paths if isinstance(path, str) and is_site_path(path)}
    return plan(uploads, published, prunes=prunes)


def carry_out(place: Place, project_id: str, what: Plan, progress: Progress) -> None:
    """Raises CommandError, SpaceRefusedError, UploadRefusedError. What was done by then stays."""
    uploads = Uploads(place.kept_service, place.bearer, project_id, progress)
    uploads.run(what.files)
    uploads.run(what.pages)
    api = place.api
    for path in what.deletions:
        patiently(partial(_unpublish, api, project_id, path), time.sleep)


def _unpublish(api: ProjectApi, project_id: str, path: str) -> None:
    """That it is gone already is as good."""
    try:
        api.unpublish(project_id, path)
    except SpaceRefusedError as refused:
        if refused.word != "object_not_found":
            raise
