"""Who keeps actors alive, who knows their names, and how all of them stop: the supervisor and what it is made of."""
