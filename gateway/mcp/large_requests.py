"""How many requests may be large at the same time: each is in memory several times over while it is served. Pure."""

from types import TracebackType


class LargeRequests:
    def __init__(self, large_max: int) -> None:
        self._large_max = large_max
        self._large = 0

    def request(self) -> "Share":
        return Share(self)

    def take(self) -> bool:
        if self._large >= self._large_max:
            return False
        self._large += 1
        return True

    def give_back(self) -> None:
        self._large -= 1


class Share:
    """One request's place, once it is taken. It is given back when everybody has left its context."""

    def __init__(self, requests: LargeRequests) -> None:
        self._requests = requests
        self._users = 0
        self._is_taken = False

    def take(self) -> bool:
        """Whether this request may be large. Once it may, it may."""
        self._is_taken = self._is_taken or self._requests.take()
        return self._is_taken

    def __enter__(self) -> "Share":
        self._users += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._users -= 1
        if self._is_taken and not self._users:
            self._is_taken = False
            self._requests.give_back()
