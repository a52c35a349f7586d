"""Projects: their API, their sites by hostname, uploads, and the session of their operator."""
