"""Whom a message is for, by its address: the one rule for those who are here, who come back, and who are notified."""

from collections.abc import Container


def is_for(sub: str | None, tuid: str | None, uid: str | None, subs: Container[str]) -> bool:
    """Whether what is addressed with `sub` and `tuid` is for one who goes by `uid` and is in `subs`."""
    return (tuid is None or tuid == uid) and (sub is None or sub in subs)
