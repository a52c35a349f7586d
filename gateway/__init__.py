"""What touches the outside: access, listeners, the HTTP application and the command line."""
