"""Telemetry streams."""
