"""Telemetry streams over HTTP: opening one, and its bytes on a socket of its own or over ASGI."""
