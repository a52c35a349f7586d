"""What a gateway carries, with and without personal data in it; from a seed, so that a failure can be had again.

What is planted is made here from the rules of each number (check digits by python-stdnum), not with the patterns that
are to find it.
"""

import ipaddress
import string
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

from stdnum import luhn
from stdnum.br import cpf
from stdnum.es import dni
from stdnum.iban import calc_check_digits
from stdnum.nl import bsn
from stdnum.pl import pesel

from gateway.governance.pii.kinds import Kind

NATIONAL_IDS = ["nl.bsn", "es.dni", "br.cpf", "pl.pesel"]
_TOOLS = ["system.echo", "system.metrics.snapshot", "system.metrics.subscribe", "light.set_level", "door2.lock_v2"]
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PLACES = ["kitchen", "hall", "greenhouse", "pump-house", "roof"]


@dataclass(frozen=True)
class Document:
    """A body, the kinds that are in it, and the very texts that were planted."""

    body: Any
    kinds: frozenset[Kind]
    planted: tuple[str, ...]


def digits(random: Random, count: int) -> str:
    return "".join(random.choice(string.digits) for _ in range(count))


# ---- clean ----------------------------------------------------------------------------------------------------------


def ulid(random: Random) -> str:
    return random.choice("01234567") + "".join(random.choices(_CROCKFORD, k=25))


def node_name(random: Random) -> str:
    return f"{random.choice(_PLACES)}-{random.choice(['pi', 'esp32', 'nuc'])}{random.randrange(100):02}"


def tool_name(random: Random) -> str:
    return f"{ulid(random).lower()}.{random.choice(_TOOLS)}"


def timestamp(random: Random) -> str:
    day = f"{random.randrange(1999, 2031)}-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}"
    clock = f"{random.randrange(24):02}:{random.randrange(60):02}:{random.randrange(60):02}"
    return f"{day}{random.choice('T ')}{clock}{random.choice(['Z', '.' + digits(random, 6) + 'Z', '+02:00', ''])}"


def machine_text(random: Random) -> str:
    """A string such as devices and tools send, with nobody's data in it."""
    r = random
    makers: list[Callable[[], str]] = [
        lambda: ulid(r),
        lambda: ulid(r).lower(),
        lambda: str(UUID(int=r.getrandbits(128))),
        lambda: UUID(int=r.getrandbits(128)).hex,
        lambda: r.randbytes(32).hex(),
        lambda: "blake3:" + r.randbytes(32).hex(),
        lambda: node_name(r),
        lambda: tool_name(r),
        lambda: timestamp(r),
        lambda: str(r.randrange(1_500_000_000_000, 1_900_000_000_000)),  # ms
        lambda: str(r.randrange(1_500_000_000_000_000_000, 1_900_000_000_000_000_000)),  # ns
        lambda: str(r.randrange(10 ** r.randrange(1, 12))),
        lambda: f"{r.uniform(-90, 90):.6f},{r.uniform(-180, 180):.6f}",
        lambda: f"{r.uniform(-90, 90):+.6f}{r.uniform(-180, 180):+.6f}/",
        lambda: " ".join(f"{r.uniform(0, 8):.2f}" for _ in range(3)),
        lambda: " ".join(str(r.randrange(1000, 9999)) for _ in range(r.randrange(6, 20))),
        lambda: f"v{r.randrange(9)}.{r.randrange(20)}.{r.randrange(99)}-rc{r.randrange(9)}",
        lambda: ":".join(r.randbytes(1).hex() for _ in range(r.choice([6, 8]))),
        lambda: "-".join(r.randbytes(1).hex() for _ in range(6)),
        lambda: f"/dev/ttyUSB{r.randrange(4)}",
        lambda: f"SN-{digits(r, 4)}-{digits(r, 4)}-{digits(r, 4)}",
        lambda: f"{r.randrange(24):02}:00-{r.randrange(24):02}:30",
        lambda: f"getty@tty{r.randrange(8)}.service",
        lambda: f"std::vector<u{r.randrange(9)}::x> in [1::{r.randrange(9)}]",
        lambda: "listening on 0.0.0.0:8420 and [::]:8421, mask 255.255.255.0",
    ]
    return r.choice(makers)()


def telemetry(random: Random) -> dict[str, Any]:
    return {
        "type": "telemetry",
        "msg_id": ulid(random),
        "in_reply_to": ulid(random),
        "payload": {
            "ts_ms": random.randrange(1_500_000_000_000, 1_900_000_000_000),
            "node_id": ulid(random).lower(),
            "cpu_pct": round(random.uniform(0, 100), 1),
            "mem_bytes": random.randrange(1 << 33),
            "mem_total_bytes": 1 << 33,
            "disk_pct": round(random.uniform(0, 100), 1),
            "load_1m": round(random.uniform(0, 8), 2),
            "load_5m": round(random.uniform(0, 8), 2),
            "load_15m": round(random.uniform(0, 8), 2),
        },
    }


# ---- planted --------------------------------------------------------------------------------------------------------


def _in_groups(text: str, sizes: list[int], separator: str) -> str:
    groups, done = [], 0
    for size in sizes:
        groups.append(text[done : done + size])
        done += size
    return separator.join([*groups, *([text[done:]] if text[done:] else [])])


def email(r: Random) -> str:
    name = r.choice(["jane.doe", "x", "o'neill", "joão", "a_b-c", "first.last+tag", "user%example"]) + digits(
        r, r.randrange(4)
    )
    host = r.choice(["example.com", "mail.example.co.uk", "exämple.de", "xn--exmple-cua.org", "a-b.io", "例え.jp"])
    return f"{name}@{host}"


def phone(r: Random) -> str:
    area, tail = str(r.randrange(200, 999)), digits(r, 7)
    return r.choice(
        [
            f"+1 ({area}) {tail[:3]}-{tail[3:]}",
            f"({area}) {tail[:3]}-{tail[3:]}",
            f"{area}-{tail[:3]}-{tail[3:]}",
            f"{area}.{tail[:3]}.{tail[3:]}",
            f"1-{area}-{tail[:3]}-{tail[3:]}",
            f"+49 30 {tail}",
            f"+4420{digits(r, 8)}",
            f"+44 (0)20 {digits(r, 4)} {digits(r, 4)}",
            f"+31-6-{digits(r, 8)}",
            f"+91 {r.randrange(60000, 99999)} {digits(r, 5)}",
            f"020 {digits(r, 4)} {digits(r, 4)}",
            f"06-{digits(r, 8)}",
            f"0171/{tail}",
            f"(030) {tail}",
            "01 " + " ".join(digits(r, 2) for _ in range(4)),
            "03." + ".".join(digits(r, 2) for _ in range(4)),
            f"0044 20 {digits(r, 4)} {digits(r, 4)}",
        ]
    )


def card(r: Random) -> str:
    prefix, length = r.choice(
        [(prefix, 16) for prefix in ("4", "51", "55", "2221", "2720", "6011", "65", "3528", "62", "2202")]
        + [("4", 13), ("4", 19), ("62", 19), ("34", 15), ("37", 15), ("36", 14), ("305", 14)]
    )
    number = prefix + digits(r, length - len(prefix) - 1)
    number += luhn.calc_check_digit(number)
    sizes = [4, 6] if length in (14, 15) else [4, 4, 4, 4]
    return r.choice([number, _in_groups(number, sizes, " "), _in_groups(number, sizes, "-")])


def iban(r: Random) -> str:
    country, bban = r.choice(
        [
            ("DE", digits(r, 18)),
            ("GB", "NWBK" + digits(r, 14)),
            ("NL", "ABNA" + digits(r, 10)),
            ("BE", digits(r, 12)),
            ("FR", digits(r, 10) + "ABC" + digits(r, 10)),
            ("NO", digits(r, 11)),
            ("MT", "MALT" + digits(r, 5) + "A" * 8 + digits(r, 10)),
        ]
    )
    number = country + calc_check_digits(f"{country}00{bban}") + bban
    return r.choice([number, number.lower(), _in_groups(number, [4] * (len(number) // 4), " ")])


def ssn(r: Random) -> str:
    area = r.choice([r.randrange(1, 666), r.randrange(667, 900)])
    separator = r.choice("-- .")
    return f"{area:03}{separator}{r.randrange(1, 100):02}{separator}{r.randrange(1, 10000):04}"


def ip(r: Random) -> str:
    v4 = f"{r.choice([1, 8, 10, 172, 192, 223])}.{r.randrange(256)}.{r.randrange(256)}.{r.randrange(256)}"
    v6 = ipaddress.IPv6Address(r.choice([0x20010DB8, 0x2A000000, 0xFD000000, 0xFE800000]) << 96 | r.getrandbits(64))
    return r.choice([v4, f"{v4}:8420", f"{v4}/24", str(v6), v6.exploded, f"[{v6}]:443", f"::ffff:{v4}"])


def national_id(r: Random) -> str:
    def valid(make: Callable[[], str], is_valid: Callable[[str], bool]) -> str:
        while not is_valid(number := make()):
            pass
        return number

    makers: list[Callable[[], str]] = [
        lambda: valid(lambda: str(r.randrange(10**8, 10**9)), bsn.is_valid),
        lambda: valid(lambda: digits(r, 8) + r.choice(["", "-"]) + r.choice(string.ascii_uppercase), dni.is_valid),
        lambda: cpf.format(valid(lambda: digits(r, 11), cpf.is_valid)),
        lambda: valid(lambda: f"{r.randrange(20, 99)}{r.randrange(1, 13):02}{digits(r, 7)}", pesel.is_valid),
    ]
    return r.choice(makers)()


PLANTS = {
    Kind.EMAIL: email,
    Kind.PHONE: phone,
    Kind.CARD: card,
    Kind.IBAN: iban,
    Kind.SSN: ssn,
    Kind.IP: ip,
    Kind.NATIONAL_ID: national_id,
}
_SENTENCES = [
    "{}",
    "Please use {} from now on.",
    "contact: {}, thanks",
    "<{}>",
    "({})",
    "id={};",
    '"{}"',
    "{}\nbye",
    "電話{}です",
]
_FULL_WIDTH = {ord(c): ord(c) + 0xFEE0 for c in string.digits + string.ascii_letters}
_NO_BREAK = {ord(" "): "\u00a0", ord("-"): "\u2011"}


def disguised(r: Random, text: str) -> str:
    middle = r.randrange(1, len(text))
    unseen = text[:middle] + "\u200b" + text[middle:]
    return r.choice([*[text] * 5, text.translate(_FULL_WIDTH), text.translate(_NO_BREAK), unseen])


def nested(r: Random, strings: list[str]) -> Any:
    body: Any = [1, None, True, *strings]
    for _ in range(r.randrange(4)):
        body = r.choice([{"value": body, "unit": "W"}, [body, 2.5], {"rows": [body, {}]}])
    return body


def documents(seed: int, count: int) -> list[Document]:
    """Half of them clean, the others with one to three plants among clean strings."""
    r = Random(seed)
    made = []
    for number in range(count):
        strings = [machine_text(r) for _ in range(r.randrange(1, 6))]
        kinds = r.sample(list(PLANTS), r.randrange(1, 4)) if number % 2 else []
        planted = [disguised(r, PLANTS[kind](r)) for kind in kinds]
        strings += [r.choice(_SENTENCES).format(plant) for plant in planted]
        r.shuffle(strings)
        made.append(Document(nested(r, strings), frozenset(kinds), tuple(planted)))
    return made
