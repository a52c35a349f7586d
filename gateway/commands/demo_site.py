"""The demo's site: a board of the fleet on a hostname of its own, published as `heliograph site deploy` would, and its
nodes' samples in the room of its project.

Process-local to the demo, and no part of a gateway. A data folder that is used again keeps its project and its bearer.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import trio

from actors.private_file import write_private
from actors.supervision.child import ChildSpec, Kind
from actors.supervision.stop_ladder import Stage
from gateway.commands.demo_room import Frame, Voice, talk
from gateway.commands.parsing import CommandError, printable
from gateway.commands.project_arguments import Place
from gateway.commands.project_file import is_project_id
from gateway.commands.site_deploy import carry_out, planned, room_object
from gateway.commands.site_folder import hashed
from gateway.commands.site_plan_rules import Upload
from gateway.commands.site_upload import UploadRefusedError
from gateway.commands.space_client import SpaceRefusedError
from gateway.main.server import Running
from schemas.echo.times import rfc3339

BOARD = Path(__file__).parent.parent / "examples" / "board"
BEARER_FILE, PROJECT_FILE = "demo-bearer", "demo-project"
LABEL = "board"
NODES_MAX = 24  # on the board; more would be over the rate of one connection to a room
_ROOM = "room.json"


def kept_bearer(folder: Path) -> str:
    """That of the folder, if it is used again. Raises OSError."""
    file = folder / BEARER_FILE
    if not file.exists():
        write_private(file, secrets.token_hex(32).encode())
    return file.read_text().strip()


@dataclass(frozen=True, slots=True)
class DemoSite:
    project: dict[str, Any]

    @property
    def url(self) -> str:
        return str(self.project["url"])

    @property
    def project_id(self) -> str:
        return str(self.project["project_id"])

    @classmethod
    async def publish(cls, gateway: Running, folder: Path, bearer: str) -> "DemoSite | None":
        """None where there are no projects, or no room for one: the demo goes on without."""
        if gateway.spaces is None:
            return None
        try:
            place = Place(gateway.http_url, bearer)
            return cls(await trio.to_thread.run_sync(_published, place, folder / PROJECT_FILE, abandon_on_cancel=True))
        except (CommandError, SpaceRefusedError, UploadRefusedError) as error:
            print(f"The board could not be published: {printable(str(error))}\n")
            return None

    def let_talk(self, gateway: Running, node_ids: Sequence[str]) -> None:
        """From now on, until the room or the gateway ends."""
        assert gateway.spaces is not None
        assert gateway.rooms is not None
        voice = Voice(gateway.spaces, gateway.rooms, str(self.project["app_token"]), "fleet")
        for number, node_id in enumerate(node_ids[:NODES_MAX]):
            labels = gateway.devices.directory.labels_of(node_id)
            told_of = partial(sample, labels.name or node_id, labels.tags.get("site", ""))
            run = partial(talk, gateway.devices.fleet, node_id, voice, told_of)
            name = f"demo_board/{number}"
            gateway.supervisor.start(ChildSpec(name=name, run=run, kind=Kind.TEMPORARY, stage=Stage.STREAMS))


def sample(name: str, site: str, frame: Frame) -> Frame:
    """As the board reads it."""
    return {
        "node": name,
        "site": site,
        "cpu_pct": round(frame["cpu_pct"], 1),
        "mem_pct": round(100 * frame["mem_bytes"] / frame["mem_total_bytes"], 1),
        "load_1m": round(frame["load_1m"], 2),
        "at": rfc3339(frame["ts_ms"]),
    }


def _published(place: Place, file: Path) -> dict[str, Any]:
    """In a thread. Raises CommandError, SpaceRefusedError, UploadRefusedError."""
    project = _project(place, file)
    if project.get("app_token") is None:  # its room has ended since the last time
        project = place.api.book(project["project_id"], {})
    uploads = [Upload(one.name, *hashed(one), one) for one in BOARD.iterdir()]
    uploads.append(room_object(project, _ROOM))
    what = planned(place, project["project_id"], uploads, prunes=True)
    carry_out(place, project["project_id"], what, _Quiet())
    return project


def _project(place: Place, file: Path) -> dict[str, Any]:
    kept = file.read_text().strip() if file.exists() else ""
    if is_project_id(kept):
        try:
            return place.api.project(kept)
        except SpaceRefusedError as refused:
            if refused.word != "project_not_found":
                raise
    try:
        project = place.api.create({"name": "Fleet board", "domain": LABEL})
    except SpaceRefusedError as refused:
        if refused.word != "domain_taken":  # by a project of somebody who uses the folder for more
            raise
        project = place.api.create({"name": "Fleet board"})
    file.write_text(f"{project['project_id']}\n")
    return project


class _Quiet:
    def sent(self, count: int) -> None:
        pass

    def uploaded(self, upload: Upload) -> None:
        pass
