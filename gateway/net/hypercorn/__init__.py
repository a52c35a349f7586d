"""What the door leaves to hypercorn (TLS, HTTP/2, WebSocket), held to the door's bounds."""
