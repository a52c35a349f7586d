"""The door: cleartext HTTP/1.1 for one ASGI application, strict and fast. See door.py."""
