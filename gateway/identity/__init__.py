"""Who may do what: tokens, scopes and the safety matrix. Keys, clocks and revocations are handed in."""
