"""What is said of a crash: the exception's class and the places in our code it passed through. Pure.

Never its text: `str(exc)` of a parser or validator quotes the frame it choked on, and a device's strings do not go into
our log (device wire §4.1). Writing the report to the log is left to the caller.
"""

import itertools
import traceback
from collections.abc import Iterator
from pathlib import PurePath

CAUSES_MAX = 8
"""Of an exception group with more leaves, or a longer chain, the first are reported."""
PLACES_MAX = 24
PARTS_OF_A_PATH = 4  # enough to find a file in its package, and nothing of where this is installed
"""Of a deeper traceback (a recursion is a thousand frames deep) the innermost places are reported."""


def leaves(exc: BaseException) -> Iterator[BaseException]:
    """The exceptions a (nested) group is about, or the one exception itself."""
    if isinstance(exc, BaseExceptionGroup):
        for member in exc.exceptions:
            yield from leaves(member)
    else:
        yield exc


def first_leaf(exc: Exception) -> Exception:
    """Reduce a group to one exception, the one named as cause. (The leaves of an `Exception` are `Exception`s.)"""
    return next(leaf for leaf in leaves(exc) if isinstance(leaf, Exception))


def interrupt_in(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    """The KeyboardInterrupt or SystemExit inside a group, so that it leaves the supervisor as what it is."""
    return next((leaf for leaf in leaves(group) if isinstance(leaf, (KeyboardInterrupt, SystemExit))), None)


def report(exc: BaseException) -> list[dict[str, object]]:
    """Each cause as `{"error": class, "at": places}`, outermost place first; after a leaf, what it was raised from."""
    causes = itertools.chain.from_iterable(_chain(leaf) for leaf in leaves(exc))
    return [{"error": _class_name(cause), "at": _places(cause)} for cause in itertools.islice(causes, CAUSES_MAX)]


def _chain(exc: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = exc
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield from leaves(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _class_name(exc: BaseException) -> str:
    return f"{type(exc).__module__}.{type(exc).__qualname__}"


def _places(exc: BaseException) -> list[str]:
    places = [
        f"{'/'.join(PurePath(frame.f_code.co_filename).parts[-PARTS_OF_A_PATH:])}:{line} {frame.f_code.co_qualname}"
        for frame, line in traceback.walk_tb(exc.__traceback__)
    ]
    return places[-PLACES_MAX:]
