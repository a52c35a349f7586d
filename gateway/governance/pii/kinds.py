"""What each kind of personal data looks like, and the check that tells it from what merely looks like it.

One function a kind, from folded text to the spans it finds. Each pattern is linear: it repeats a bounded number of
times, or over characters that what follows cannot begin with. None crosses a line end, so that strings joined by line
ends give what each gives alone.

A border is ASCII: `電話03-1234-5678` has no space where the number begins. Groups of digits that go on beyond a match,
in the same style, make it something longer: a serial number, a row of readings.
"""

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from ipaddress import AddressValueError, IPv6Address, IPv6Network

from stdnum import iban, luhn
from stdnum.us import ssn

Span = tuple[int, int]
Finder = Callable[[str], Iterator[Span]]


class Kind(StrEnum):
    EMAIL = "email"
    PHONE = "phone"
    CARD = "card"
    IBAN = "iban"
    SSN = "ssn"
    IP = "ip"
    NATIONAL_ID = "national_id"


# Before and after a number: no letter or digit, nor a group of digits that it would be the continuation of.
_BEFORE = r"(?<![A-Za-z0-9+])(?<!\d[-./])"
_AFTER = r"(?![A-Za-z0-9]|[-./]\d)"
_ALONE_BEFORE = _BEFORE + r"(?<!\d )"
_ALONE_AFTER = _AFTER + r"(?! \d)"
# Numbers with a decimal point: one alone, a coordinate (+52.520008+013.404954), a row of them.
READINGS = re.compile(r"\+?\d+\.\d+\Z|\+\d+\.\d{5}|.*\d\.\d+[ /]+\d+\.\d")

# ---- forms of machines: never personal data, however their digits fall ----------------------------------------------

_PAIR = "[0-9A-Fa-f]{2}"
MACHINE_FORMS = [
    re.compile(r"(?<![A-Za-z0-9])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![A-Za-z0-9])"),  # UUID
    re.compile(
        rf"(?<![A-Za-z0-9:]){_PAIR}([-:]){_PAIR}(?:\1{_PAIR}){{4}}(?:\1{_PAIR}\1{_PAIR})?(?![A-Za-z0-9:])"
    ),  # MAC
    re.compile(
        r"(?<![\d.])(?:(?:19|20)\d\d([-./])(?:0[1-9]|1[0-2])\1(?:0[1-9]|[12]\d|3[01])|[0-3]\d([-./])[0-3]\d\2(?:19|20)\d\d)"
        r"(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?)?(?!\d)"  # a date, perhaps with a time
    ),
]

# ---- e-mail ---------------------------------------------------------------------------------------------------------

_LOCAL = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]{1,64}\Z")
_DOMAIN = re.compile(
    r"@(?:[\w-]{1,63}\.){1,10}(?:xn--[A-Za-z0-9-]{2,59}|[A-Za-z]{2,24}|[^\W\d_A-Za-z]{1,24})(?![A-Za-z0-9])"
)
# `user@1000.service` is a unit of systemd, `icon@2x.png` an image; no top-level domain has these names.
_NOT_DOMAINS = re.compile(
    r".*\.(?:service|socket|timer|target|mount|automount|slice|scope|swap|device|path"
    r"|png|jpe?g|gif|svg|webp|css|js|json)",
    re.IGNORECASE,
)


def emails(text: str) -> Iterator[Span]:
    for domain in _DOMAIN.finditer(text):
        at, end = domain.span()
        local = _LOCAL.search(text, max(0, at - 64), at)
        if local and any(map(str.isalnum, local[0])) and not _NOT_DOMAINS.fullmatch(domain[0]):
            yield local.start(), end


# ---- payment cards --------------------------------------------------------------------------------------------------

# In one piece, or in the groups that are printed on cards. One more group of four may stand before or after (a year); a
# longer row is a row of readings.
_FOURS = r"[2-6]\d{3}([-. ])(?:\d{4}\2){2}\d{1,4}"
_FOURS_AND_REST = r"[2-6]\d{3}([-. ])(?:\d{4}\2){3}\d{1,3}"
_CARD_SHAPES = [
    re.compile(rf"{_BEFORE}{row_before}(?=({shape}){_AFTER}{row_after})")
    for shape in (_FOURS_AND_REST, _FOURS)
    for row_before, row_after in [
        (r"(?<!\d{4} )", r"(?! \d{4} \d{4})"),
        (r"(?<!\d{4} \d{4} )(?<=\d{4} )", r"(?! \d{4})"),
    ]
]
_CARD_SHAPES += [
    re.compile(rf"{_BEFORE}(?=([2-6]\d{{12,18}}){_AFTER})"),
    re.compile(rf"{_ALONE_BEFORE}(?=(3\d{{3}}([-. ])\d{{6}}\2\d{{4,5}}){_AFTER})"),
]
_ISSUERS = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})"  # Visa
    r"|(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}"  # Mastercard
    r"|3[47]\d{13}"  # American Express
    r"|(?:6011|64[4-9]\d|65\d\d)\d{12}(?:\d{3})?"  # Discover
    r"|3(?:0[0-5]|[689]\d)\d{11}"  # Diners Club
    r"|35(?:2[89]|[3-8]\d)\d{12}"  # JCB
    r"|62\d{14,17}"  # UnionPay
    r"|220[0-4]\d{12}"  # Mir
    r"|(?:5018|5020|5038|5893|6304|6759|676[1-3])\d{9,15}"  # Maestro
)
_NOT_DIGITS = re.compile(r"\D")


def cards(text: str) -> Iterator[Span]:
    for shape in _CARD_SHAPES:
        for candidate in shape.finditer(text):
            digits = _NOT_DIGITS.sub("", candidate[1])
            if _ISSUERS.fullmatch(digits) and luhn.is_valid(digits):
                yield candidate.span(1)


# ---- IBAN -----------------------------------------------------------------------------------------------------------

_IBAN = re.compile(r"(?<![A-Za-z0-9])(?=([A-Za-z]{2}\d\d(?:[ -]?[A-Za-z0-9]{4}){2,7}(?:[ -]?[A-Za-z0-9]{1,3})?))")
_GOES_ON = re.compile("[A-Za-z0-9]")
# How long a country's IBAN is (SWIFT's registry): the text does not say where an IBAN ends and the next word begins.
IBAN_LENGTHS = {
    country: length
    for length, countries in {
        15: "NO",
        16: "BE",
        18: "DK FI FK FO GL NL SD",
        19: "MK SI",
        20: "AT BA EE KZ LT LU MN XK",
        21: "CH HR LI LV",
        22: "BG BH CR DE GB GE IE ME RS VA",
        23: "AE GI IL IQ OM SO TL",
        24: "AD CZ ES MD PK RO SA SE SK TN VG",
        25: "LY PT ST",
        26: "IS TR",
        27: "BI DJ FR GR IT MC MR SM",
        28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
        29: "BR EG PS QA UA",
        30: "JO KW MU YE",
        31: "MT SC",
        32: "LC",
        33: "RU",
    }.items()
    for country in countries.split()
}


def ibans(text: str) -> Iterator[Span]:
    # The checks of single countries know which banks there are, or were when python-stdnum was released: not asked.
    for candidate in _IBAN.finditer(text):
        length = IBAN_LENGTHS.get(candidate[1][:2].upper())
        if length is None:
            continue
        start, end = candidate.span(1)
        ends = [place + 1 for place in range(start, end) if text[place] not in " -"]
        if len(ends) >= length:
            end = ends[length - 1]
            if not _GOES_ON.match(text, end) and iban.is_valid(text[start:end], check_country=False):
                yield start, end


# ---- US social security numbers -------------------------------------------------------------------------------------

# Only with separators: nine digits alone are any number of nine digits.
_SSN = re.compile(rf"{_ALONE_BEFORE}\d{{3}}([-. ])\d\d\1\d{{4}}{_ALONE_AFTER}")


def ssns(text: str) -> Iterator[Span]:
    for candidate in _SSN.finditer(text):
        if ssn.is_valid(_NOT_DIGITS.sub("-", candidate[0])):
            yield candidate.span()


# ---- IP addresses ---------------------------------------------------------------------------------------------------

# From 1.0.0.0 to 223.255.255.255 without 127: no loopback, no multicast, no netmask. `1.2.3.4-rc1` is a version.
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = re.compile(
    rf"(?<![A-Za-z0-9.])(?!0\.|127\.|22[4-9]\.|2[345]\d\.){_OCTET}(?:\.{_OCTET}){{3}}(?![A-Za-z0-9]|\.\d|[-+][A-Za-z])"
)
_IPV6 = re.compile(r"(?<![A-Za-z0-9:.])[0-9A-Fa-f:]{3,39}+(?:(?:\.\d{1,3}){3})?(?![A-Za-z0-9])")
_V6_IN_USE = [IPv6Network(net) for net in ("2000::/3", "fc00::/7", "fe80::/10", "::ffff:0:0/96", "64:ff9b::/96")]


def ips(text: str) -> Iterator[Span]:
    for candidate in _IPV4.finditer(text):
        yield candidate.span()
    for candidate in _IPV6.finditer(text):
        written = candidate[0] if candidate[0].endswith("::") else candidate[0].rstrip(":")
        if written.count(":") < 2:
            continue
        try:
            address = IPv6Address(written)
        except AddressValueError:
            continue
        if any(address in net for net in _V6_IN_USE):
            yield candidate.start(), candidate.start() + len(written)


# ---- telephone numbers ----------------------------------------------------------------------------------------------

_PHONE_BEFORE = _ALONE_BEFORE + r"(?<![A-Za-z]-)"  # SN-0059-5765-5733 is a serial number
_ONLY_DOTS = re.compile(r"[\d.]*")
_PHONES = [
    # +49 30 1234567, +1 (415) 555-0100, +442079460958
    (re.compile(r"(?<![A-Za-z0-9+])\+[1-9](?:[ ./()-]{0,2}\d){7,14}(?![A-Za-z0-9])"), range(8, 16)),
    # (415) 555-0100, 415-555-0100, 1 415 555 0100
    (
        re.compile(
            rf"{_PHONE_BEFORE}(?:1[-. ])?(?:\([2-9]\d\d\) ?\d{{3}}[-. ]|[2-9]\d\d([-. ])\d{{3}}\1)\d{{4}}{_ALONE_AFTER}"
        ),
        range(10, 12),
    ),
    # 020 7946 0958, 06-12345678, 01 23 45 67 89, (030) 123456, 0044 20 7946 0958
    (
        re.compile(
            rf"{_PHONE_BEFORE}(?:\(0[1-9]\d{{0,3}}\)(?=[ \d])|00?[1-9]\d{{0,3}}(?=[-./ ]))"
            rf"[-./ ]?\d{{2,8}}+(?:[-. ]\d{{2,8}}+){{0,4}}{_ALONE_AFTER}"
        ),
        range(9, 15),
    ),
]


def phones(text: str) -> Iterator[Span]:
    for pattern, lengths in _PHONES:
        for candidate in pattern.finditer(text):
            written = candidate[0]
            digits = len(_NOT_DIGITS.sub("", written))
            if written.startswith(("0", "(0")):
                if digits > (14 if written.startswith("00") else 11):
                    continue
                if "." in written and not _ONLY_DOTS.fullmatch(written):  # 060.885.295-39 is a tax number
                    continue
            if digits in lengths and not READINGS.match(written):
                yield candidate.span()


# In this order: what an earlier kind has claimed, a later one does not see. An IBAN has groups like a card's.
FINDERS: dict[Kind, Finder] = {
    Kind.EMAIL: emails,
    Kind.IBAN: ibans,
    Kind.CARD: cards,
    Kind.SSN: ssns,
    Kind.IP: ips,
    Kind.PHONE: phones,
}
