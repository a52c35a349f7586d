"""How many requests may be large at a time, and until when one counts."""

from gateway.mcp.large_requests import LargeRequests


def test_place_is_taken_once_and_given_back_at_the_end_of_the_request() -> None:
    large = LargeRequests(1)
    with large.request() as first, large.request() as second:
        assert first.take()
        assert first.take()
        assert not second.take()
    with large.request() as third:
        assert third.take()


def test_request_that_takes_no_place_gives_none_back() -> None:
    large = LargeRequests(1)
    with large.request():
        pass
    with large.request() as first, large.request() as second:
        assert [first.take(), second.take()] == [True, False]


def test_place_is_kept_until_the_call_is_over_that_outlives_its_request() -> None:
    large = LargeRequests(1)
    share = large.request()
    call = share.__enter__()
    with share:
        assert share.take()
    with large.request() as other:
        assert not other.take()
    call.__exit__(None, None, None)
    with large.request() as other:
        assert other.take()


def test_call_that_goes_on_alone_takes_a_place_of_its_own() -> None:
    large = LargeRequests(1)
    share = large.request()
    with share:
        assert share.take()
    with share:
        assert share.take()
        with large.request() as other:
            assert not other.take()


def test_each_account_has_a_bound_of_its_own() -> None:
    large = LargeRequests(4, (2, 1))
    with (
        large.request(("room", "here")) as first,
        large.request(("room", "here")) as same_address,
        large.request(("room", "there")) as second,
        large.request(("room", "elsewhere")) as same_room,
        large.request(("other", "here")) as other_room,
        large.request(("other", "elsewhere")) as neighbour,
    ):
        taken = [one.take() for one in (first, same_address, second, same_room, other_room, neighbour)]
        assert taken == [True, False, True, False, False, True]
    with large.request(("room", "here")) as again:
        assert again.take()


def test_accounts_of_the_same_name_are_not_the_same() -> None:
    large = LargeRequests(4, (1, 1))
    with large.request(("a", "b")) as first, large.request(("b", "a")) as second:
        assert [first.take(), second.take()] == [True, True]


def test_place_that_one_bound_refuses_is_taken_from_no_other() -> None:
    large = LargeRequests(4, (1, 1))
    with large.request(("a", "here")) as first, large.request(("a", "there")) as second:
        assert [first.take(), second.take()] == [True, False]
        with large.request(("b", "there")) as third:
            assert third.take()
