"""These tests are collected only where `ray` is installed, as `make ray` does: it is in no lock file."""

from importlib.util import find_spec

collect_ignore_glob = ["test_*"] if find_spec("ray") is None else []
