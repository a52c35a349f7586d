"""The pages of several processes as one: every series gets a label that says whose it is. Pure.

All pages are of this program, so their families are the same, and a line is a name, perhaps labels, and a value.
"""

from collections.abc import Mapping

LABEL = "process"


def merged(pages: Mapping[str, bytes]) -> bytes:
    """By process. A family stands where the first page has it."""
    heads: dict[str, list[str]] = {}
    lines: dict[str, list[str]] = {}
    for process, page in pages.items():
        family = ""
        for line in page.decode().splitlines():
            if line.startswith("# HELP "):
                family = line.split(" ", 3)[2]
            if line.startswith("#"):
                head = heads.setdefault(family, [])
                if line not in head and len(head) < 2:
                    head.append(line)
            elif line:
                lines.setdefault(family, []).append(_labelled(line, process))
    out = [line for family, head in heads.items() for line in (*head, *lines.get(family, ()))]
    return ("\n".join(out) + "\n").encode()


def _labelled(line: str, process: str) -> str:
    series, _, value = line.rpartition(" ")
    name, brace, labels = series.partition("{")
    mine = f'{LABEL}="{process}"'
    return f"{name}{{{mine},{labels} {value}" if brace else f"{name}{{{mine}}} {value}"
