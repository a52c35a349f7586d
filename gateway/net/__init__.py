"""Sockets and HTTP: the pump, TLS, one request and its answer over ASGI; our own server and hypercorn."""
