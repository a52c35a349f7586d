"""What the console costs: see `__main__`."""
