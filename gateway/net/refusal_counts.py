"""Refusals of a feature's routes, counted by their word."""

from collections.abc import Mapping

from gateway.net.exchange import Exchange
from gateway.net.router import Handler, Route


def counted(routes: Mapping[str, Route], refused: dict[str, int]) -> dict[str, Route]:
    """The same routes. `refused` has every word that they may refuse with."""
    return {path: (method, _counted(handle, refused)) for path, (method, handle) in routes.items()}


def _counted(handle: Handler, refused: dict[str, int]) -> Handler:
    async def counted(exchange: Exchange) -> None:
        try:
            await handle(exchange)
        finally:
            if exchange.refused_with is not None:
                refused[exchange.refused_with] += 1

    return counted
