"""Rates, and what an agent has spent, told to people."""
