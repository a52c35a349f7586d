"""What the door leaves to hypercorn (HTTP/2, and WebSockets nobody adopts), held to the door's bounds."""
