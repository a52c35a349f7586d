"""Real processes, real sockets, real files, and kill -9 at every point of a command's life."""
