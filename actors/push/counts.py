"""What Web Push did in this process, as plain integers. They name nobody. Who reads them is not known here."""

from actors.push.subscription_rules import Outcome


class PushCounts:
    """One for the process; whoever does something adds to it."""

    __slots__ = ("deliveries", "notifications", "subscriptions")

    def __init__(self) -> None:
        self.subscriptions = 0  # taken, those that took the place of another of the same endpoint included
        self.notifications = 0  # that somebody asked for, and that were sent to however many
        self.deliveries = dict.fromkeys(Outcome, 0)  # of notifications, one for each browser
