"""Echo spaces: rooms, values and files behind a capability URL."""
