"""The benchmark of sites: `python -m bench.sites`."""
