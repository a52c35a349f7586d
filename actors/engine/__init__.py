"""What several gateways share besides the log, as ports with an implementation in memory: for simulations and tests."""
