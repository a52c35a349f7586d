"""Nothing is left of a stream, however its client goes, and however many have come and gone."""

from dataclasses import replace

import pytest

from tests.stream.site import SLOW, site

PATIENT = replace(SLOW, close_s_max=1000.0)
"""Whoever waits for an acknowledgement that cannot come fails the test."""


@pytest.mark.parametrize("how", ["hang_up", "reset"])
async def test_client_that_is_gone_is_not_waited_for(how: str) -> None:
    async with site(PATIENT) as here:
        node = await here.node()
        agent = await here.subscribe()
        getattr(agent, how)()
        await here.no_streams()
        assert node.cancelled == [node.cadences[0].msg_id]
