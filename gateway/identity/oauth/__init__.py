"""The authorization server (OAuth 2.1 for MCP clients): documents, consent, tokens, registration.

It knows neither spaces nor fleets: who a passkey belongs to, and what its grants are, is behind `worlds.Worlds`.
"""

from pathlib import Path

ASSETS = "/oauth/assets"  # where they are served
STATIC = Path(__file__).parent / "static"
TEMPLATES = Path(__file__).parent / "templates"
