"""The HTTP application: plain ASGI, one handler a route, every refusal an error envelope."""
