"""WebSockets on sockets of our own: what the sockets of nodes and of rooms share."""
