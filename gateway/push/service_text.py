"""What `/service/description` says of Web Push, true to this instance."""

from pathlib import Path
from string import Template

from gateway.push.settings import PushSettings

_TEXT = Template((Path(__file__).parent / "service_description.md").read_text())
_OFFERED = "This instance offers Web Push."
_NOT_OFFERED = (
    "Web Push is not configured on this instance: these routes, and the tools, answer 503 `push_not_configured`."
)


def service_text(settings: PushSettings, *, is_configured: bool) -> str:
    offer = _OFFERED if is_configured else _NOT_OFFERED
    return _TEXT.substitute(offer=offer, notify_s=f"{settings.notify_s_max:g}")
