"""What `/service/description` says of projects, with the values of this instance and no secret."""

from pathlib import Path
from string import Template

from gateway.projects.settings import ProjectsSettings

_TEXT = Template((Path(__file__).parent / "service_description.md").read_text())
_MCP = Template((Path(__file__).parent / "service_description_mcp.md").read_text())
_OFFERED = "This instance offers the project API."
_NOT_OFFERED = "This instance has no such bearer: these routes answer 503 `api_auth_not_configured`."
_TO_US = "Without `size`, any size up to the limit below"
_TO_A_BUCKET = "`size` is required, and exactly as many bytes must come; the file is published a few seconds later"


def service_text(settings: ProjectsSettings, base: str = "", *, has_bucket: bool = False, has_mcp: bool = True) -> str:
    """`has_bucket`: presigned uploads go there. `has_mcp`: operators have sessions, if there is a bearer."""
    is_offered = settings.api_bearer_token is not None
    offer = _OFFERED if is_offered else _NOT_OFFERED
    return _TEXT.substitute(
        site_suffix=settings.site_suffix,
        offer=offer,
        presign_s=settings.presign_s,
        presigned=_TO_A_BUCKET if has_bucket else _TO_US,
        object_bytes_max=settings.object_bytes_max,
        objects_max=settings.objects_max,
        site_bytes_max=settings.site_bytes_max,
    ) + (_MCP.substitute(base=base) if is_offered and has_mcp else "")
