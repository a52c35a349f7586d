"""The subcommands of `heliograph`, one file a noun. Each adds its parser and runs with what was parsed."""

import sys

# structlog imports rich where it finds it, for tracebacks that nobody here prints. One command draws with rich: no
# other, and no gateway, is to load it. So structlog is imported first, while rich cannot be found.
if "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog as structlog

    del sys.modules["rich"]
