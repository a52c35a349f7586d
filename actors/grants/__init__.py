"""Grants: what a person gave a client, as families of tokens. For spaces and for members of a tenant alike."""
