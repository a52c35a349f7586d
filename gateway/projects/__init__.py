"""Projects over HTTP: the API of operators, sites by hostname, uploads, and the operator's session on `/mcp`."""
