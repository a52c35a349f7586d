"""The door: our HTTP/1.1 server for cleartext, in front of one ASGI application. Start reading at `door.py`."""
