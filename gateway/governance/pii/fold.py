"""Text as a person reads it: the look-alikes of ASCII folded to ASCII, what cannot be seen dropped.

A card number in full-width digits is the same card number, and so it is with a zero-width space in the middle. NFKC
alone does not do it: it leaves Arabic digits and dashes as they are, and it may make three characters of one, so that a
finding could not be traced to where it came from. One character here folds to one
ASCII character, to nothing, or to itself.
Letters that only look alike (Cyrillic а) stay what they are: folding them would call ordinary Russian text Latin.
"""

import re
import unicodedata

# Where characters with an ASCII compatibility form live: Latin-1, modifiers, punctuation to enclosed alphanumerics,
# full-width forms, styled letters and digits.
_COMPATIBLE = [
    range(0xA0, 0x250),
    range(0x2B0, 0x370),
    range(0x1D00, 0x1E00),
    range(0x2000, 0x3400),
    range(0xFE10, 0x10000),
    range(0x1D400, 0x1D800),
    range(0x1F100, 0x1F200),
    range(0x1FBF0, 0x1FBFA),
]
_DIGITS = [
    range(0x660, 0x1A9A),
    range(0x1B50, 0x1C5A),
    range(0xA620, 0xABFA),
    range(0xFF10, 0xFF1A),
    range(0x104A0, 0x12000),
]
_DIGITS += [range(0x16A60, 0x16D80), range(0x1CCF0, 0x1CCFA), range(0x1D7CE, 0x1D800), range(0x1E140, 0x1E960)]
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\ufe58\ufe63\uff0d"
_FULL_STOPS = "\u3002\uff61\u2024\uff0e"
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u20e3\ufe00-\ufe0f"
    "\ufeff\U000e0000-\U000e0fff]"
)


def _folds() -> dict[int, str]:
    folds: dict[int, str] = {}
    for code in (code for block in _COMPATIBLE for code in block):
        plain = unicodedata.normalize("NFKC", chr(code))
        if len(plain) == 1 and plain.isascii():
            folds[code] = plain
    digits = (chr(code) for block in _DIGITS for code in block if chr(code).isdecimal())
    folds |= {ord(digit): str(unicodedata.decimal(digit)) for digit in digits}
    return folds | {ord(dash): "-" for dash in _DASHES} | {ord(stop): "." for stop in _FULL_STOPS}


_FOLDS = _folds()


def folded(text: str) -> str:
    """The text as it reads; the very same text if it is ASCII."""
    return text if text.isascii() else _UNSEEN.sub("", text).translate(_FOLDS)


def places(text: str) -> list[int]:
    """For each character of `folded(text)`, where in `text` it came from; at the end, the length of `text`."""
    return [i for i, character in enumerate(text) if not _UNSEEN.match(character)] + [len(text)]
