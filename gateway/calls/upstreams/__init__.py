"""Other MCP servers behind the same pipeline: kept connected, their tools listed and called under a prefix."""
