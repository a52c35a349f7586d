"""The contract: JSON Schema files, and the pure code that reads, checks, signs, names and refuses by them.

Nothing here opens a socket, reads a clock or starts a task; `actors` and `gateway` import this package, never the
other way round.
"""
