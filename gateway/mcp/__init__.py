"""The endpoint `/mcp`: the Model Context Protocol over Streamable HTTP, on the official SDK (imported as `mcp`)."""
