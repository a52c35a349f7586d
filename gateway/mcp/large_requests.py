"""How many requests may be large at the same time: each is in memory several times over while it is served. Pure."""

from collections import Counter
from collections.abc import Hashable
from types import TracebackType


class LargeRequests:
    def __init__(self, in_all_max: int, of_accounts_max: tuple[int, ...] = ()) -> None:
        """`of_accounts_max` has one for each of a caller's accounts."""
        self._in_all_max = in_all_max
        self._of_accounts_max = of_accounts_max
        self._large = 0
        self._per_account: Counter[tuple[int, Hashable]] = Counter()  # by which of the limits it is for

    def request(self, accounts: tuple[Hashable, ...] = ()) -> "Share":
        return Share(self, accounts)

    def take(self, accounts: tuple[Hashable, ...]) -> bool:
        if self._large >= self._in_all_max or any(
            self._per_account[account] >= of_account_max
            for account, of_account_max in zip(enumerate(accounts), self._of_accounts_max, strict=True)
        ):
            return False
        self._large += 1
        self._per_account.update(enumerate(accounts))
        return True

    def give_back(self, accounts: tuple[Hashable, ...]) -> None:
        self._large -= 1
        for account in enumerate(accounts):
            self._per_account[account] -= 1
            if not self._per_account[account]:
                del self._per_account[account]


class Share:
    """One request's place, once it is taken. It is given back when everybody has left its context."""

    def __init__(self, requests: LargeRequests, accounts: tuple[Hashable, ...]) -> None:
        self._requests = requests
        self._accounts = accounts
        self._users = 0
        self._is_taken = False

    def take(self) -> bool:
        """Whether this request may be large. Once it may, it may."""
        self._is_taken = self._is_taken or self._requests.take(self._accounts)
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
            self._requests.give_back(self._accounts)
