"""Projects: a name, rooms, and a site of published files; who they are, and what their streams in the log say."""
