"""Members of tenants at the door: their passkeys and grants as a world of the authorization server, and their page."""

from pathlib import Path

ASSETS = "/join/assets"  # where they are served
STATIC = Path(__file__).parent / "static"
TEMPLATES = Path(__file__).parent / "templates"
