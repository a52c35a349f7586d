"""Telemetry streams: who listens to a cadence, and what each listener's stream says and when."""
