"""ULIDs as order: those minted for one node strictly increase, whatever its clock or ours does.

A command's id is also its place in line (device wire §7.3 compares them), so a mint never repeats or goes back:
within a millisecond, when the clock steps back, or above an id that the node has already reported. Upper case is the
form of messages, lower case of nodes.
"""

from collections.abc import Callable

MSG_ID_AHEAD_MS_MAX = 24 * 60 * 60 * 1000  # a reported id further ahead of our clock than this is refused (§5)

_RANDOM_BITS = 80
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [high + low for high in _DIGITS for low in _DIGITS]  # ten bits at a time
_FORTY_BITS = (1 << 40) - 1
# Crockford's digits, in order, to those that int(…, 32) reads.
_TO_BASE32 = str.maketrans(_DIGITS, "0123456789abcdefghijklmnopqrstuv")


def to_int(ulid: str) -> int:
    """The value of an upper-case ULID that fits its schema; those past 128 bits too, which sort above any real one."""
    return int(ulid.translate(_TO_BASE32), 32)


def to_text(value: int) -> str:
    """A ULID, upper case, of its 128-bit value. (python-ulid takes four times as long, and every call mints one.)"""
    pairs = _PAIRS
    # In three pieces that fit a machine word: shifting all 128 bits thirteen times takes twice as long.
    time, high, low = value >> 80, value >> 40 & _FORTY_BITS, value & _FORTY_BITS
    return (
        f"{pairs[time >> 40]}{pairs[time >> 30 & 1023]}{pairs[time >> 20 & 1023]}{pairs[time >> 10 & 1023]}"
        f"{pairs[time & 1023]}{pairs[high >> 30]}{pairs[high >> 20 & 1023]}{pairs[high >> 10 & 1023]}"
        f"{pairs[high & 1023]}{pairs[low >> 30]}{pairs[low >> 20 & 1023]}{pairs[low >> 10 & 1023]}{pairs[low & 1023]}"
    )


def timestamp_ms(ulid: str) -> int:
    return to_int(ulid) >> _RANDOM_BITS


def is_too_far_ahead(ulid: str, now_ms: int) -> bool:
    """Whether minting above this id would drag our own ids more than a day into the future."""
    return timestamp_ms(ulid) - now_ms > MSG_ID_AHEAD_MS_MAX


class Mint:
    """Mints strictly increasing ULIDs for one node. `entropy(n)` gives n random bytes."""

    def __init__(self, entropy: Callable[[int], bytes]) -> None:
        self._entropy = entropy
        self._last = 0

    def observe(self, ulid: str) -> None:
        """From here on, mint above this id. Ask `is_too_far_ahead` first when it comes from outside."""
        self._last = max(self._last, to_int(ulid))

    def mint(self, now_ms: int) -> str:
        if now_ms > self._last >> _RANDOM_BITS:
            self._last = now_ms << _RANDOM_BITS | int.from_bytes(self._entropy(_RANDOM_BITS // 8))
        else:  # the same millisecond, or the clock stepped back, or an id was observed: the next value in line
            self._last += 1
        return to_text(self._last)
