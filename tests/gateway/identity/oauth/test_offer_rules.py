"""Offers: minutes, once, in the browser that they were made to."""

from gateway.identity.oauth.authorize_rules import AuthorizeRequest
from gateway.identity.oauth.offer_rules import Offer, Offers
from gateway.identity.oauth.redirect_rules import RedirectUri
from tests.gateway.identity.oauth.site import ADA, CHALLENGE, REDIRECT

REQUEST = AuthorizeRequest(
    RedirectUri(REDIRECT, "http", "127.0.0.1", "/callback"), None, "", None, None, "/mcp", CHALLENGE
)
OFFER = Offer(REQUEST, ADA, ADA.scopes)


def test_an_offer_is_taken_once_and_by_its_browser_alone() -> None:
    offers = Offers(300.0, 10)
    offer_id = offers.add(OFFER, "mine", 0.0)
    assert offers.take(offer_id, "another", 1.0) is None
    assert offers.take(offer_id, "mine", 299.9) == OFFER
    assert offers.take(offer_id, "mine", 299.9) is None


def test_an_offer_ends() -> None:
    offers = Offers(300.0, 10)
    offer_id = offers.add(OFFER, "mine", 0.0)
    assert offers.take(offer_id, "mine", 300.0) is None
    assert len(offers) == 0


def test_their_number_is_bounded_and_the_oldest_goes() -> None:
    offers = Offers(300.0, 2)
    ids = [offers.add(OFFER, "mine", 0.0) for _ in range(3)]
    assert [offers.take(one, "mine", 0.0) is None for one in ids] == [True, False, False]
