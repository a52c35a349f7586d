"""`heliograph serve` that logs all there is to log: its own lines and those of every library, at debug level."""

import logging
import sys
from unittest.mock import patch

from gateway.commands import cli, serve
from gateway.observe.log_output import LogSettings, log_to


def log_everything(settings: LogSettings) -> None:
    logging.basicConfig(level=logging.DEBUG)
    logging.getLogger(__name__).debug("whatever a library says at debug level is seen")
    log_to(settings, logging.DEBUG)


if __name__ == "__main__":
    with patch.object(serve, "log_to", log_everything):
        sys.exit(cli.main())
