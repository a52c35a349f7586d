"""How often random digits pass for personal data: the figures of docs/explanation/personal-data.md.

    python -m bench.false_positives

Digits from a seed, each number alone in a string. A national id is looked for by its name alone, among numbers of the
length and form that it has. Prints hits in 100.
"""

import sys
from random import Random

from gateway.governance.pii.kinds import Kind
from gateway.governance.pii.scanner import Scanner

SEED, NUMBERS = 20260728, 20_000
FORMS = {"nl.bsn": "#########", "es.dni": "########A", "pl.pesel": "###########", "br.cpf": "###########"} | {
    "fr.nir": "###############"
}
LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"


def number(form: str, random: Random) -> str:
    return "".join(random.choice("0123456789" if char == "#" else LETTERS) for char in form)


def share(scanner: Scanner, kind: Kind, form: str) -> float:
    random = Random(SEED)
    return sum(kind in scanner.find({"text": number(form, random)}) for _ in range(NUMBERS)) / NUMBERS * 100


def main() -> int:
    cards = Scanner([Kind.CARD])
    for digits in (16, 13):
        print(f"{digits} digits as a card: {share(cards, Kind.CARD, '#' * digits):.1f} of 100")
    for name, form in FORMS.items():
        print(f"{name}: {share(Scanner([Kind.NATIONAL_ID], [name]), Kind.NATIONAL_ID, form):.1f} of 100")
    return 0


if __name__ == "__main__":
    sys.exit(main())
