"""Governance on every call: authority, budget, rate, data."""
