"""Passkeys: ceremonies, what a browser is asked for, and whether what it answers is to be believed.

Knows nothing of spaces, tenants or routes: a credential has a realm (`space:<id>`, `fleet:<tenant>`, `console`), and
whoever keeps credentials looks them up. Decisions are in docs/adr/0028-passkeys.md.
"""
