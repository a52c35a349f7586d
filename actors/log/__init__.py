"""The command log: what happened to each command, written before anything depends on it.

`events` is what is recorded, `command_rules` what may be recorded, `store` the port that keeps it, `sqlite_store` and
`memory_store` the two that do, and `node_stream` the bridge between the rules and the port.
"""
