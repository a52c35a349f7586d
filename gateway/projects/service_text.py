"""What `/service/description` says of projects, with the values of this instance and no secret."""

from pathlib import Path
from string import Template

from gateway.projects.settings import ProjectsSettings

_TEXT = Template((Path(__file__).parent / "service_description.md").read_text())
_OFFERED = "This instance offers the project API."
_NOT_OFFERED = "This instance has no such bearer: these routes answer 503 `api_auth_not_configured`."


def service_text(settings: ProjectsSettings) -> str:
    offer = _NOT_OFFERED if settings.api_bearer_token is None else _OFFERED
    return _TEXT.substitute(site_suffix=settings.site_suffix, offer=offer)
