"""What the console's pages are made of: one shell, a stylesheet, plain ES modules."""

from pathlib import Path

CONSOLE = "/console"
ASSETS = f"{CONSOLE}/assets"  # where they are served
STATIC = Path(__file__).parent / "static"
TEMPLATES = Path(__file__).parent / "templates"
