"""The operator's policy: reading it, and what it says of an agent and a tool."""
