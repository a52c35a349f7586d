"""Who lives in a gateway: supervised actors, the rules they follow and the log they are rebuilt from."""
