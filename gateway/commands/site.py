"""`heliograph site …`: publish a folder as the site of a project, see what is there, take files away."""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from gateway.commands.parsing import CommandError, Subparsers, print_rows, printable
from gateway.commands.project_arguments import add_action, checked_id, place_of, project_of
from gateway.commands.project_file import NAME
from gateway.commands.site_deploy import carry_out, existing_target, new_target, planned, room_object
from gateway.commands.site_folder import SiteFolder, read_folder
from gateway.commands.site_plan_rules import Plan, Skip, Upload, plan
from gateway.commands.site_progress import shown
from gateway.commands.site_upload import UploadRefusedError
from schemas.echo.site_paths import is_site_path

_HOW = f"""\
The first deploy creates a project and writes its id into {NAME}: at the root of the git repository, or beside DIR where
there is none (in DIR, if that is the current folder). Later ones read it there. Left out are names that begin with a
dot (but for .well-known), bin/ and deploy scripts at the top of DIR, what .gitignore ignores, and symbolic links.
Files that the site has with the same SHA-256 are not sent again. Nothing is deleted without --prune.
"""


def add(commands: Subparsers) -> None:
    actions = commands.add_parser(
        "site", help="publish a folder as the site of a project: deploy, ls, rm"
    ).add_subparsers(required=True, metavar="ACTION")
    deploy = add_action(actions, "deploy", _deploy, "publish a folder; only what changed is sent", description=_HOW)
    deploy.add_argument("dir", metavar="DIR", help="the folder; its index.html is the page at /")
    deploy.add_argument("--name", help=f"of a project that is created (default: that of the folder with {NAME})")
    deploy.add_argument("--domain", metavar="LABEL", help="of a project that is created (default: made of its name)")
    deploy.add_argument("--prune", action="store_true", help="delete what the site has and DIR does not")
    deploy.add_argument(
        "--room", metavar="PATH", help="publish there, as JSON, where the project's room is; such as room.json"
    )
    deploy.add_argument("--dry-run", action="store_true", help="print what would be done, and change nothing")
    ls = add_action(actions, "ls", _ls, "list the files of the site")
    ls.add_argument("--prefix", default="", help="only files whose path begins with it")
    for parser in (deploy, ls):
        parser.add_argument("--json", action="store_true", help="for scripts")
    rm = add_action(actions, "rm", _rm, "take a file away")
    rm.add_argument("path", metavar="PATH", help="as `site ls` shows it")
    for parser in (deploy, ls, rm):
        parser.add_argument("--project", metavar="ID", help=f"(default: that of {NAME})")


def _deploy(arguments: argparse.Namespace) -> int:
    try:
        folder = Path(arguments.dir).resolve(strict=True)
        if not folder.is_dir():
            raise CommandError(f"{arguments.dir} is no folder: give the one that holds the site")
    except OSError as error:
        raise CommandError(f"cannot read {arguments.dir}: {error.strerror}") from None
    if arguments.room is not None:
        _checked_path(arguments.room)
    place = place_of(arguments)
    named = None if arguments.project is None else checked_id(arguments.project)
    found = read_folder(folder)
    if not found.uploads:
        raise CommandError(f"there is nothing to publish in {arguments.dir}{_because(found)}")
    target = existing_target(place, folder, named)
    if target is None and arguments.dry_run:
        _tell_dry(plan(found.uploads, {}, prunes=False), None, is_json=arguments.json)
        return 0
    if target is None:
        target = new_target(place, folder, arguments.name, arguments.domain)
    uploads: list[Upload] = found.uploads
    if arguments.room is not None:
        room = room_object(target.project, arguments.room)
        uploads = [one for one in uploads if one.path != arguments.room] + [room]
    project_id = target.project["project_id"]
    what = planned(place, project_id, uploads, prunes=arguments.prune)
    if arguments.dry_run:
        _tell_dry(what, target.project, is_json=arguments.json)
        return 0
    try:
        with shown(what, is_quiet=arguments.json) as progress:
            carry_out(place, project_id, what, progress)
    except UploadRefusedError as refused:
        print(f"heliograph: {printable(str(refused))}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps(_document(what, target.project)))
    else:
        for path in what.deletions:
            print(f"deleted {printable(path)}")
        print(f"{_counts(what)}{_skipped(found.skipped)}")
        print(printable(str(target.project.get("url", ""))))
    return 0


def _document(what: Plan, project: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "project_id": None if project is None else project["project_id"],
        "url": None if project is None else project.get("url"),
        "uploaded": [one.path for one in what.uploads],
        "deleted": list(what.deletions),
        "unchanged": what.unchanged,
    }


def _tell_dry(what: Plan, project: dict[str, Any] | None, *, is_json: bool) -> None:
    if is_json:
        print(json.dumps(_document(what, project)))
        return
    if project is None:
        print("would create a project")
    for one in what.uploads:
        print(f"would upload {printable(one.path)}")
    for path in what.deletions:
        print(f"would delete {printable(path)}")
    print(f"{what.unchanged} unchanged")


def _counts(what: Plan) -> str:
    counts = [(len(what.uploads), "uploaded"), (what.unchanged, "unchanged"), (len(what.deletions), "deleted")]
    return ", ".join(f"{count} {word}" for count, word in counts if count or word != "deleted")


def _skipped(skipped: Counter[Skip]) -> str:
    if not skipped:
        return ""
    return f"; left out: {', '.join(f'{skipped[skip]} {skip.value}' for skip in Skip if skipped[skip])}"


def _because(found: SiteFolder) -> str:
    if found.skipped[Skip.IGNORED]:
        return ": .gitignore ignores what is there; a .gitignore in that folder that says !* takes it back"
    return _skipped(found.skipped)


def _ls(arguments: argparse.Namespace) -> int:
    project_id = project_of(arguments)
    files = list(place_of(arguments).api.objects(project_id, arguments.prefix))
    if arguments.json:
        print(json.dumps(files))
    else:
        columns = ("path", "size", "content_type", "updated_at")
        print_rows([{column: printable(str(file.get(column, ""))) for column in columns} for file in files])
    return 0


def _rm(arguments: argparse.Namespace) -> int:
    path = _checked_path(arguments.path)
    place_of(arguments).api.unpublish(project_of(arguments), path)
    print(f"deleted {path}")
    return 0


def _checked_path(text: str) -> str:
    if not is_site_path(text):
        raise CommandError(
            "a path is that of a file on the site, such as css/site.css, without a slash at its beginning"
        )
    return text
