"""What agents have spent: one event-sourced ledger an agent, in the same log as the commands."""
