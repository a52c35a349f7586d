"""Echo spaces towards the outside: rooms over WebSocket."""
