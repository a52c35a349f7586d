"""Signals that whoever started pytest had ignored: `nohup`, a shell's background jobs.

A child inherits what is ignored, and a handler never: exec resets handlers to the default. So pytest gets handlers that
do nothing. It goes on as it was meant to, and what tests start can be ended by a signal, wherever pytest runs.
"""

import signal

_OF_A_TERMINAL = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def let_children_hear() -> None:
    """In the main thread, before anything is started."""
    for number in _OF_A_TERMINAL:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda _, __: None)
