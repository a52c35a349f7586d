"""What the service description says of push is true of this instance."""

import pytest

from gateway.push.service_text import service_text
from gateway.push.settings import PushSettings


@pytest.mark.parametrize(("notify_s_max", "told"), [(25.0, "after 25 s"), (7.5, "after 7.5 s")])
def test_description_has_the_time_that_a_notification_takes_at_most(notify_s_max: float, told: str) -> None:
    assert told in service_text(PushSettings(notify_s_max=notify_s_max), is_configured=True)


def test_description_says_whether_push_is_configured() -> None:
    texts = [service_text(PushSettings(), is_configured=is_configured) for is_configured in (True, False)]
    assert ["push_not_configured" in text for text in texts] == [False, True]
