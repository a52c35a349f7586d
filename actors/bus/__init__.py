"""What crosses processes, as ports with their in-process implementations: who is where, reaching a node, paying."""
