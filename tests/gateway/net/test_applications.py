"""Which application a host has, and in whose words a request is refused."""

from gateway.net.applications import Application, Applications, NoSite
from gateway.net.refusal_form import Refused
from tests.gateway.net.http1.site import echo


def one_form(_status: int, _id: str) -> Refused:
    return Refused(400, (), b"main")


def other_form(_status: int, _id: str) -> Refused:
    return Refused(400, (), b"site")


MAIN = Application(echo, lambda _: 1, form_of=lambda path: one_form if path == "/a" else None)
SITE = Application(echo, lambda _: 2, form_of=lambda _: other_form)


def sites(host: bytes) -> Application | NoSite:
    if host == b"site":
        return SITE
    return NoSite.UNCLEAR if host == b"odd" else NoSite.MAIN


def test_every_host_is_the_main_application_s_where_there_are_no_sites() -> None:
    applications = Applications(MAIN)
    assert applications.at(b"site") is applications.at(b"odd") is applications.at(None) is MAIN


def test_host_of_a_site_is_that_site_s_and_an_unclear_one_nobody_s() -> None:
    applications = Applications(MAIN, sites)
    assert applications.at(b"site") is SITE
    assert applications.at(b"else") is applications.at(None) is MAIN
    assert applications.at(b"odd") is None


def test_refusal_has_the_form_of_the_host_first_and_then_of_the_path() -> None:
    applications = Applications(MAIN, sites)
    assert applications.form_at(b"site", "/a") is other_form
    assert applications.form_at(b"else", "/a") is one_form
    assert applications.form_at(b"odd", "/a") is one_form
    assert applications.form_at(None, "/b") is None
