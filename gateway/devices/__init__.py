"""Where nodes dial in: the listener, their sockets, and the device side put together."""
