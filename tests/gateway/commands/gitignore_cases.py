"""What git itself says of folders with `.gitignore` files, recorded, so that tests need no git.

    python -m tests.gateway.commands.gitignore_cases record         into gitignore_cases.json beside this
    python -m tests.gateway.commands.gitignore_cases try SEED       many more folders, and none is kept

Patterns are put together of whatever git gives a meaning to, and of what it does not.
"""

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from gateway.commands.gitignore_rules import IgnoreFile, is_ignored

RECORDED = Path(__file__).with_suffix(".json")
RANDOM_CASES, TRIED_CASES = 150, 3_000
_ATOMS = (
    "a", "b", "c", "*", "*", "?", "**", "/", "/", "/**/", "[ab]", "[!a]", "[^b]", "[[:alpha:]]", "[a-c]", "\\a", "\\*",
    "!", "#", "\\", ".", "foo", "[]a]", "[a", "-", "[a/]", "[a-", "\\/", "[[:x:]]", "[[:]", "é", "[\\]]", "[!-]",
    "[b-a]", "[[:punct:]-z]", "[[:upper:][:digit:]]", "A", "1", " ", "\\ ", "\r", "\t",
)  # fmt: skip
_NAMES = ["a", "b", "c", "ab", "foo", "a b", "a.b", "!", "#", "-", "]", "a*", "[a", "\\a", "aa", "a ", "é", "A1", "*"]

Case: TypeAlias = dict[str, Any]  # `rules`: text of a .gitignore by folder, "" for the root; `files`; `shown`: of these

# By hand: the pages of git's documentation, and what people write.
_WRITTEN: Sequence[tuple[Mapping[str, str], Sequence[str]]] = (
    ({"": "*.log\n!keep.log\n"}, ["a.log", "keep.log", "logs/b.log", "logs/keep.log", "log"]),
    ({"": "node_modules/\n.env*\n!.env.example\n"}, ["node_modules/x/y.js", "a/node_modules/z.js", ".env", ".env.local",
     ".env.example", "src/.env"]),
    ({"": "/build\ndist/*\n!dist/public\n"}, ["build/a", "src/build/a", "dist/a", "dist/public/b", "dist/c/d"]),
    ({"": "secret\n", "pub": "!secret\n"}, ["secret", "pub/secret", "pub/deep/secret", "other/secret"]),
    ({"": "pub/\n", "pub": "!secret\n"}, ["pub/secret", "pub/a", "a"]),
    ({"": "a/**/b\n**/c\nd/**\n"}, ["a/b", "a/x/b", "a/x/y/b", "c", "x/c/d", "d/e/f", "x/d/e"]),
    ({"": "foo/\n"}, ["foo", "bar/foo/x", "bar/food"]),
    ({"": "*\n!*/\n!*.html\n"}, ["index.html", "a.txt", "sub/b.html", "sub/b.txt", "sub/deep/c.html"]),
    ({"": "\ufeffa\n\n  \n# b\n\\#c\n\\!d\ne \nf\\ \n"}, ["a", "b", "#c", "!d", "e", "e ", "f ", "f", "# b", "  "]),
    ({"": "x/a**/c\n"}, ["x/ab/zz/c", "x/a/c", "x/b/c"]),
    ({"": "*.key\r\nid_*\r\n"}, ["server.key", "id_rsa", "id", "a/b.key"]),
    ({"": "doc/frotz\n/foo/*\n!/foo/bar\n/foo/bar/*\n!/foo/bar/baz\n"}, ["doc/frotz", "a/doc/frotz", "foo/x",
     "foo/bar/y", "foo/bar/baz/z"]),
)  # fmt: skip


def shown_by_us(root: Path, rules: Mapping[str, str]) -> list[str]:
    """As `heliograph site deploy` walks: no ignored folder is entered."""
    found: list[str] = []

    def walk(folder: Path, names: list[bytes], files: list[tuple[int, IgnoreFile]]) -> None:
        here = b"/".join(names).decode()
        if here in rules:
            files = [*files, (len(names), IgnoreFile(rules[here].encode()))]
        for entry in folder.iterdir():
            inner, is_folder = [*names, entry.name.encode()], entry.is_dir()
            if entry.name in (".git", ".gitignore") or is_ignored(files, inner, is_folder=is_folder):
                continue
            if is_folder:
                walk(entry, inner, files)
            else:
                found.append(b"/".join(inner).decode())

    walk(root, [], [])
    return sorted(found)


def build(root: Path, files: Sequence[str]) -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()


def _shown_by_git(root: Path, rules: Mapping[str, str]) -> list[str]:
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for folder, text in rules.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / ".gitignore").write_text(text, newline="")
    command = ["git", "-C", str(root), "ls-files", "-o", "-z", "--exclude-per-directory=.gitignore"]
    listed = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
    return sorted(path for path in listed if path and path.rpartition("/")[2] != ".gitignore")


def _random(rng: random.Random) -> tuple[dict[str, str], list[str]]:
    def text() -> str:
        lines = ["".join(rng.choices(_ATOMS, k=rng.randint(1, 6))) for _ in range(rng.randint(1, 5))]
        return "\n".join(lines) + rng.choice(["", "\n"])

    files: list[str] = []
    folders = [""]
    for first in rng.sample(_NAMES, 7):
        if rng.random() < 0.6:
            files.append(first)
            continue
        folders.append(first)
        for second in rng.sample(_NAMES, 4):
            if rng.random() < 0.5:
                files.append(f"{first}/{second}")
            else:
                files += [f"{first}/{second}/{third}" for third in rng.sample(_NAMES, 3)]
    return {folder: text() for folder in folders if not folder or rng.random() < 0.4}, files


def _case(rules: Mapping[str, str], files: Sequence[str]) -> tuple[Case, list[str]]:
    with tempfile.TemporaryDirectory() as made:
        build(Path(made), files)
        shown = _shown_by_git(Path(made), rules)
        return {"rules": dict(rules), "files": sorted(files), "shown": shown}, shown_by_us(Path(made), rules)


def _main(word: str, seed: str = "0") -> int:
    rng = random.Random(int(seed))
    count = RANDOM_CASES if word == "record" else TRIED_CASES
    cases = [_case(*one) for one in (*_WRITTEN, *(_random(rng) for _ in range(count)))]
    if word == "record":
        lines = ",\n".join(json.dumps(case) for case, _ in cases)
        RECORDED.write_text(f"[\n{lines}\n]\n")
    wrong = [(case, ours) for case, ours in cases if case["shown"] != ours]
    for case, ours in wrong[:5]:
        print(case, ours)
    print(f"{len(wrong)} of {len(cases)} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
