"""Benchmarks of engine mode: gateways that share a log on NATS JetStream."""
