"""Who may do what: tokens, scopes and the safety matrix. Pure: keys, clocks and revocations are handed in."""
