"""The landing page in a browser: what its form makes, and how it refuses."""

from tests.browser.chromium import Browser
from tests.browser.gateway import Gateway


def test_x(gateway: Gateway, anna: Browser) -> None:
    anna.open(gateway.url)
