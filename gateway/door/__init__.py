"""The door: HTTP for one ASGI application, ours in cleartext, else hypercorn held to its bounds. See `door.py`."""
