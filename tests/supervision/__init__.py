"""Supervision: registry, restart rules, crash reports, the supervisor and its stop ladder."""
