"""Echo spaces over HTTP: making one, its values and files, its prompt. Pages and WebSocket rooms are elsewhere."""
