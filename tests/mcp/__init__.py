"""The MCP endpoint."""
