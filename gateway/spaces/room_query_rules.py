"""What a client asks for in the address of its room: its name, its subspaces, and where it left off. Pure."""

import re
from collections.abc import Callable

from actors.space.room_effects import Opening
from schemas.echo.frames import SUBS_MAX, Encoding
from schemas.echo.names import is_name

HINTS = frozenset({"tz", "loc"})  # as good as absent when they are malformed; no reason to stay outside
_SEQ = re.compile(r"[0-9]{1,19}", re.ASCII)
_FLAGS = {"0": False, "1": True}
_ENCODINGS = {encoding.subprotocol: encoding for encoding in Encoding}


def opening_of(query: Callable[[str], str | None], new_id: Callable[[], str]) -> Opening | None:
    """`query` gives a field's value, None for one that is absent. None: a field does not have its form.

    Fields that are not known are nobody's business: a later version may have them.
    """
    chosen, epoch, since = query("uid"), query("epoch"), query("since")
    uid = chosen or new_id()
    named = query("subs")
    subs = tuple(dict.fromkeys(named.split(","))) if named else ()
    wants_copy, watches = _FLAGS.get(query("self") or "0"), _FLAGS.get(query("presence") or "1")
    if wants_copy is None or watches is None or len(subs) > SUBS_MAX:
        return None
    if not all(map(is_name, (uid, *subs))):
        return None
    if (since is not None and not _SEQ.fullmatch(since)) or (epoch is not None and not is_name(epoch)):
        return None
    last_seen = None if since is None else int(since)
    return Opening(new_id(), uid, subs, wants_copy, watches, last_seen, epoch, is_minted=not chosen)


def offered_protocols(header: str | None) -> list[str]:
    """By `Sec-WebSocket-Protocol`; an empty one offers none."""
    return [name.strip() for name in (header or "").split(",") if name.strip()]


def chosen_encoding(names: list[str], usual: Encoding) -> Encoding | None:
    """The first that we speak. None: others were offered, but none of ours."""
    if not names:
        return usual
    return next((_ENCODINGS[name] for name in names if name in _ENCODINGS), None)
