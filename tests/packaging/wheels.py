"""`make wheels`: for which Pythons and processors every locked dependency has a wheel, so that nobody needs a compiler.

`pip download` answers it, by the locked hashes and for machines other than this one. It needs an index and some
minutes, so no test runs it; docs/how-to/install.md has the result. Exit 1 if a package of the gateway's lock has none.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCKS = {"gateway": ROOT / "requirements-gateway.lock", "development": ROOT / "requirements.lock"}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PROCESSORS = ("x86_64", "aarch64")
GLIBC = ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux_2_5", "manylinux1")
DOWNLOAD_S_MAX = 900
LACKING_MAX = 10  # then something else is wrong, and it ends


def lacking(lock: Path, python: str, processor: str, folder: Path) -> list[str]:
    """The packages without a wheel: pip names the first, which is left out of the next attempt."""
    requirements, found = lock.read_text(), list[str]()
    while len(found) < LACKING_MAX:
        attempt = folder / "requirements.txt"
        attempt.write_text(requirements)
        platforms = [option for glibc in GLIBC for option in ("--platform", f"{glibc}_{processor}")]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        wheels = ["--only-binary=:all:", "--implementation", "cp", "--python-version", python, *platforms]
        done = subprocess.run(
            [*command, *wheels, "--dest", str(folder), "--requirement", str(attempt)],
            capture_output=True,
            text=True,
            check=False,
            timeout=DOWNLOAD_S_MAX,
        )
        if done.returncode == 0:
            return found
        named = re.search(r"No matching distribution found for ([\w.-]+)==", done.stderr)
        if named is None:
            break
        found.append(named[1])
        requirements = re.sub(rf"^{re.escape(named[1])}==.*\n(?:    --hash.*\n)*", "", requirements, flags=re.MULTILINE)
    sys.exit(f"pip cannot say, for {lock.name}, Python {python}, {processor}:\n{done.stderr[-2000:]}")


def main() -> int:
    print(f"| Python | processor | {' | '.join(LOCKS)} |\n|---|---|{'---|' * len(LOCKS)}")
    complete = True
    for python in PYTHONS:
        for processor in PROCESSORS:
            cells = []
            for name, lock in LOCKS.items():
                with tempfile.TemporaryDirectory() as folder:
                    without = lacking(lock, python, processor, Path(folder))
                complete = complete and (name != "gateway" or not without)
                cells.append(f"all but {', '.join(f'`{one}`' for one in without)}" if without else "all")
            print(f"| {python} | {processor} | {' | '.join(cells)} |", flush=True)
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
