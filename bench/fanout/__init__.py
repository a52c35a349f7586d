"""Frames a second to thousands of streams, on one core: see `__main__`."""
