"""The tables of docs/reference/http.md, from the document: `python -m tests.gateway.openapi.reference` writes them."""

import tempfile
from pathlib import Path
from typing import Any

from tests.gateway.openapi.documented import Described, operations
from tests.gateway.openapi.served import EVERYTHING, served

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "http.md"
MARK = "<!-- Below: `python -m tests.gateway.openapi.reference` writes it from the OpenAPI document. -->\n"
SCHEMES = {
    "agent": "agent",
    "operator": "operator",
    "project": "project bearer",
    "room": "access token",
    "claim": "claim",
    "session": "session",
}
ORDER = ("Agents", "MCP", "Gateway", "Operators", "Spaces", "IAM of spaces", "Projects", "Web Push")


def tables(document: Any) -> str:
    every = list(operations(document))
    tags = [*ORDER, *sorted({one.operation["tags"][0] for one in every} - set(ORDER))]
    return "\n".join(_table(tag, [one for one in every if one.operation["tags"][0] == tag]) for tag in tags)


def _table(tag: str, those: list[Described]) -> str:
    head = f"### {tag}\n\n| route | | credential | answers | refused with |\n|---|---|---|---|---|\n"
    return head + "".join(f"{_row(one)}\n" for one in those)


def _row(one: Described) -> str:
    statuses = sorted(one.operation["responses"], key=int)
    good = [status for status in statuses if int(status) < 400]
    bad = [status for status in statuses if int(status) >= 400]
    cells = (
        f"`{one.method} {one.path}`",
        one.operation["summary"].removesuffix("."),
        _credential(one.operation["security"]),
        ", ".join(good),
        ", ".join(bad),
    )
    return f"| {' | '.join(cells)} |"


def _credential(security: list[dict[str, list[str]]]) -> str:
    ways = [_way(scheme, scopes) for one in security for scheme, scopes in one.items()]
    if not ways:
        return "none"
    return " or ".join(dict.fromkeys(ways)) + (", with IAM" if {} in security else "")


def _way(scheme: str, scopes: list[str]) -> str:
    named = SCHEMES.get(scheme, "cookie of the page")
    return named + (f" `{'`, `'.join(scopes)}`" if scopes else "")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, served(Path(folder), **EVERYTHING) as one:
        document = one.ask("GET", "/openapi.json").json
    PAGE.write_text(PAGE.read_text().partition(MARK)[0] + MARK + "\n" + tables(document))


if __name__ == "__main__":
    main()
