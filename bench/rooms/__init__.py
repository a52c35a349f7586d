"""The benchmark of rooms and values of echo spaces: `python -m bench.rooms`."""
