"""The console's own credentials: passkeys of operators. Sessions and links are memory, and the gateway's."""
