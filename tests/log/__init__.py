"""The command log: its rules, and every store under one contract."""
