"""Echo spaces towards the outside: making one, its values and files, its prompt, its room over WebSocket."""
