"""The errors of supervision, each saying whose fault it is. Their text is ours alone: no actor's message is quoted."""


class SupervisorStoppingError(Exception):
    """The caller came too late: the stage it wants to start an actor in has been asked to stop, or never ran."""


class ProcessMustStopError(Exception):
    """The gateway cannot go on. `Supervisor.run` raises it once every actor has ended; its text is the last line."""


class GaveUpError(ProcessMustStopError):
    """A permanent actor of ours crashed more often than its restart intensity allows."""

    def __init__(self, name: str, crashes: int, window_s: float) -> None:
        super().__init__(f"the gateway stops: {name} crashed {crashes} times within {window_s:g} s")


class FatalActorError(ProcessMustStopError):
    """An actor without which nothing may go on (the log writer) crashed, once."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the gateway stops: {name} crashed and must not be restarted")


class EndedEarlyError(Exception):
    """A bug of ours: an actor that lives as long as the gateway returned without having been asked to."""
