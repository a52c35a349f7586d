"""What the governor remembers of policy and labels, and when it judges again."""

import pytest

from actors.ledger.ledgers import Ledgers
from actors.log.memory_store import MemoryStore
from gateway.governance.denials import Denial
from gateway.governance.governor import Governor
from gateway.governance.policy.policy import DEFAULT, AgentRules, Policy
from schemas.labels import UNLABELLED, Labels
from tests.gateway.governance.test_policy import HEAD, policy_of
from tests.gateway.mcp.test_methods import principal

NODE, OTHER = "01jz0000000000000000000000", "01jz0000000000000000000001"
PUMP, VALVE = f"sys.{NODE}.metrics.snapshot", f"sys.{OTHER}.metrics.snapshot"
LAB = policy_of(f"{HEAD}tools = ['sys.**', 'search.*']\nnodes = 'tag:site=lab'")
PLAIN = policy_of(f"{HEAD}tools = 'sys.**'")
AGENT = principal()


class FakeNodes:
    """Counts what it is asked for."""

    def __init__(self) -> None:
        self.labels: dict[str, Labels] = {}
        self.revision = self.asked = 0

    def label(self, node_id: str, **tags: str) -> None:
        self.labels[node_id] = Labels(None, tags)
        self.revision += 1

    def labels_of(self, node_id: str) -> Labels:
        self.asked += 1
        return self.labels.get(node_id, UNLABELLED)

    @property
    def labels_revision(self) -> int:
        self.asked += 1
        return self.revision


class Governed:
    def __init__(self, policy: Policy) -> None:
        self.nodes, self.policy = FakeNodes(), policy
        self.governor = Governor(lambda: self.policy, Ledgers(MemoryStore()), self.nodes)

    def may(self, tool: str) -> bool:
        """As a call is judged; a list has to say the same."""
        judged = self.governor.authorize(AGENT, tool)
        assert isinstance(judged, AgentRules | Denial)
        assert self.governor.allows(AGENT)(tool) is isinstance(judged, AgentRules)
        return isinstance(judged, AgentRules)


def test_relabelled_node_is_judged_again_at_the_next_call() -> None:
    governed = Governed(LAB)
    assert (governed.may(PUMP), governed.may(VALVE)) == (False, False)
    governed.nodes.label(NODE, site="lab")
    assert (governed.may(PUMP), governed.may(VALVE)) == (True, False)
    governed.nodes.label(NODE, site="roof")
    governed.nodes.label(OTHER, site="lab")
    assert (governed.may(PUMP), governed.may(VALVE)) == (False, True)


def test_list_that_is_being_made_follows_the_labels_too() -> None:
    governed = Governed(LAB)
    allows = governed.governor.allows(AGENT)
    assert not allows(PUMP)
    governed.nodes.label(NODE, site="lab")
    assert allows(PUMP)


def test_judgement_is_remembered_until_a_label_changes() -> None:
    governed = Governed(LAB)
    governed.nodes.label(NODE, site="lab")
    first = governed.governor.authorize(AGENT, PUMP)
    asked = governed.nodes.asked
    assert [governed.governor.authorize(AGENT, PUMP) for _ in range(10)] == [first] * 10
    assert governed.nodes.asked == asked + 10  # for the revision, and for no labels


def test_tool_that_is_no_devices_is_allowed_whatever_nodes_are_called() -> None:
    governed = Governed(LAB)
    assert (governed.may("search.query"), governed.may("files.read")) == (True, False)


@pytest.mark.parametrize("policy", [PLAIN, DEFAULT])
def test_without_selectors_nobody_is_asked_what_nodes_are_called(policy: Policy) -> None:
    governed = Governed(policy)
    for _ in range(3):
        assert governed.may(PUMP)
        governed.nodes.label(NODE, site="lab")
    assert governed.nodes.asked == 0


def test_policy_that_comes_to_select_nodes_and_ceases_to_is_followed() -> None:
    governed = Governed(PLAIN)
    assert governed.may(PUMP)
    governed.policy = LAB
    assert not governed.may(PUMP)
    governed.nodes.label(NODE, site="lab")
    assert governed.may(PUMP)
    governed.policy = PLAIN
    assert governed.may(VALVE)
    governed.policy = LAB
    assert (governed.may(PUMP), governed.may(VALVE)) == (True, False)


def test_revision_is_that_of_the_policy_that_was_judged_by() -> None:
    again = policy_of(f"# the same, in another file\n{HEAD}tools = ['sys.**', 'search.*']\nnodes = 'tag:site=lab'")
    assert again == LAB
    governed, revisions = Governed(LAB), []
    for policy in (LAB, again, PLAIN, LAB):
        governed.policy = policy
        governed.may(PUMP)
        revisions.append(governed.governor.revision)
    assert revisions == [LAB.revision, again.revision, PLAIN.revision, LAB.revision]
    assert len(set(revisions)) == 3


def test_judgements_by_labels_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.governance.governor.JUDGED_MAX", 3)
    governed = Governed(LAB)
    governed.nodes.label(NODE, site="lab")
    first = governed.governor.authorize(AGENT, VALVE)
    for number in range(3):
        governed.may(f"search.{number}")
    assert governed.may(PUMP)
    assert governed.governor.authorize(AGENT, VALVE) is not first  # a denial is made anew: it was forgotten


def test_governor_that_knows_no_nodes_finds_them_unlabelled() -> None:
    by_id = policy_of(f"{HEAD}tools = 'sys.**'\nnodes = ['{NODE}', 'name:*']")
    governor = Governor(lambda: by_id, Ledgers(MemoryStore()))
    assert governor.allows(AGENT)(PUMP)
    assert not governor.allows(AGENT)(VALVE)
