"""Projects: their API, the sites they publish, uploads, and the operator's sessions on `/mcp`."""
