"""Real processes, killed and stopped: nothing acknowledged is lost, nothing runs twice, no budget is overspent."""

from tests.chaos.run import chaos

HARMS = 4  # of the twelve of a round; `make chaos` has them all


async def test_four_harms_leave_every_invariant_standing() -> None:
    report = await chaos(1, harms_max=HARMS)
    assert report.harms.total() == HARMS
    assert report.statuses[200] > 0
