"""The log: what happened, written before anything depends on it.

`store` is the port that keeps it, `sqlite_store` and `memory_store` the two that do. What the events mean is the
business of the aggregates that write them: `actors.node`, `actors.ledger`.
"""
