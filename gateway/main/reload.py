"""Settings and certificates anew, while the gateway goes on: what SIGHUP asks for.

Connections that are open keep the certificate that they began with; new ones get the new one. What cannot be taken is
told in the log, once for each time that somebody asks, and what was there before stays. No line has a value.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLContext
from typing import Any, TypeVar, TypeVarTuple

import structlog
import trio

from gateway.main.reload_rules import changes
from gateway.main.settings import Settings, SettingsError
from gateway.net.tls import server_context, text_of

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TlsListeners:
    """Those that one pair of settings is for."""

    use: Sequence[Callable[[SSLContext], None]]
    alpn: Sequence[str] = ()
    on_change: Callable[[str], None] = lambda _: None
    """Told what is in the certificate's file, once the listeners have it. May raise OSError."""


class Reload:
    def __init__(
        self, settings: Settings, adopt: Mapping[str, Callable[[Any], None]], tls: Mapping[str, TlsListeners]
    ) -> None:
        """`adopt`, by section: who is to go by its settings from now on. `tls`, by section: who listens."""
        self.settings = settings
        self._adopt = adopt
        self._tls = tls
        self._loaded = {section: _look(*self._files(section)) for section in tls}

    async def run(self, reread: Callable[[], Settings]) -> None:
        """`reread` reads the settings as at the start. Every part of them is adopted at once. Whoever is cancelled does
        not wait for a file that never ends, such as one of a server that is gone."""
        try:
            new = await _in_thread(reread)
        except SettingsError as error:
            log.error("settings_refused", message=str(error))
        else:
            self._take(new)
        for section, listeners in self._tls.items():
            await self._reload_tls(section, listeners)

    def _take(self, new: Settings) -> None:
        found = changes(self.settings, new)
        self.settings = found.effective
        for section in {name.partition(".")[0] for name in found.live} & self._adopt.keys():
            self._adopt[section](getattr(found.effective, section))
        log.info("settings_reloaded", changed=list(found.live), needs_restart=list(found.restart))

    async def _reload_tls(self, section: str, listeners: TlsListeners) -> None:
        certificate, key = self._files(section)
        if certificate is None:
            return
        look = await _in_thread(_look, certificate, key)
        if look is not None and look == self._loaded[section]:
            return
        try:
            context = await _in_thread(server_context, section, certificate, key, listeners.alpn)
        except SettingsError as error:
            log.error("tls_certificate_refused", listener=section, message=str(error))
            return
        after = await _in_thread(_look, certificate, key)
        if context is None or look is None or after != look:  # just being replaced: whoever does so asks again
            log.error("tls_certificate_refused", listener=section, message="the files change: try again")
            return
        for use in listeners.use:
            use(context)
        self._loaded[section] = look
        log.info("tls_certificate_loaded", listener=section)
        try:
            listeners.on_change(text_of(look[0]))
        except OSError as error:
            log.error("running_note_not_written", errno=error.errno)

    def _files(self, section: str) -> tuple[str | None, str | None]:
        settings = getattr(self.settings, section)
        return settings.tls_certificate, settings.tls_key


async def _in_thread(read: Callable[[*Ts], T], *arguments: *Ts) -> T:
    return await trio.to_thread.run_sync(read, *arguments, abandon_on_cancel=True)


def _look(certificate: str | None, key: str | None) -> tuple[bytes, bytes] | None:
    """What is in both files; None if they cannot be read."""
    try:
        return None if certificate is None else (Path(certificate).read_bytes(), Path(key or certificate).read_bytes())
    except OSError:
        return None
