"""Projects over HTTP: their API, the uploads of their files, and the sites that these are."""
