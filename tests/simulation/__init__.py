"""A whole fleet in one deterministic process: gateways over one log, nodes with journals, a network that misbehaves."""
