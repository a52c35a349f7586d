"""The section `[console]`: how long people are signed in, and how much of the gateway their pages may hold."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    session_s: int = 8 * 3600  # life of a session; then the page asks to sign in again
    link_s: int = 600  # life of a link that signs in; then it is refused, and `heliograph console` makes another
    links_max: int = 100  # that nobody has used yet; one more ends the oldest of the token that has the most
    sessions_max: int = 200  # one more ends the oldest of the token, or passkey, that has the most
    passkeys_max: int = 100  # of all operators; the next one is refused
    passkey_s: int = 180 * 86_400  # life of a passkey, at most that of the token behind it; then a link is needed
    sign_ins_burst: int = 10  # attempts to sign in of one address at once; the next one is 429
    sign_ins_per_min: float = 10.0  # attempts of one address after that
    pages_burst: int = 120  # pages that one address loads at once; the next one is 429
    pages_per_s: float = 20.0  # pages of one address after that
    live_max: int = 64  # live feeds and exports at once, of all sessions; the next one is 429
    live_per_session_max: int = 4  # the same of one session
    live_per_token_max: int = 16  # the same of all sessions behind one token, or passkey
    rest_s: float = 3600.0  # since somebody last looked at the fleet; then its table is let go, until the next look
    write_s_max: float = 20.0  # for a page to take what is sent of a feed or an export; then that is cut off

    def __post_init__(self) -> None:
        if min(getattr(self, one.name) for one in fields(self)) <= 0:
            raise ValueError("what is in the section console is more than 0")
