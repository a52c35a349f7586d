"""What `/service/description` says of Web Push, true to this instance."""

from pathlib import Path
from string import Template

_TEXT = Template((Path(__file__).parent / "service_description.md").read_text())
_OFFERED = "This instance offers Web Push."
_NOT_OFFERED = (
    "Web Push is not configured on this instance: these routes, and the tools, answer 503 `push_not_configured`."
)


def service_text(*, is_configured: bool) -> str:
    return _TEXT.substitute(offer=_OFFERED if is_configured else _NOT_OFFERED)
