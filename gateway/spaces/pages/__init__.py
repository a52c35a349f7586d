"""The pages of echo spaces for people: the form that makes a space, and the room."""

from pathlib import Path

ASSETS = "/assets"  # where they are served
STATIC = Path(__file__).parent / "static"
TEMPLATES = Path(__file__).parent / "templates"
