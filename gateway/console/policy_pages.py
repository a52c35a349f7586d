"""The policy for operators: its file, without what may be a secret, and what it means for an agent and a tool."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import trio

from gateway.console.api import Answer, NoAnswer
from gateway.governance.policy.explain import explain
from gateway.governance.policy.policy import Policy
from gateway.governance.policy.selectors import node_of
from gateway.governance.policy.shared_source import SharedPolicy
from gateway.governance.policy.shown_text import shown_text
from gateway.governance.policy.source import POLICY_BYTES_MAX, PolicySource
from gateway.governance.policy.text import parse, revision_of
from gateway.identity.tokens import AGENT_ID
from gateway.main.watched_file import read_regular
from schemas.errors import Code
from schemas.labels import UNLABELLED, Labels

TOOL_CHARS_MAX = 256
READERS_MAX = 1  # threads that read the file and look for secrets in it; the next page waits


class ExplainAsk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    agent: Annotated[str, msgspec.Meta(max_length=64)]
    tool: Annotated[str, msgspec.Meta(min_length=1, max_length=TOOL_CHARS_MAX)]


class PolicyPages:
    def __init__(self, source: PolicySource | SharedPolicy, labels_of: Callable[[str], Labels]) -> None:
        self._source = source
        self._labels_of = labels_of
        self._readers = trio.CapacityLimiter(READERS_MAX)

    async def policy(self) -> Answer:
        """`revision` is that of the policy that holds. The file may be another meanwhile, or broken: then
        `file_revision` is another, and `flaw` says what is wrong with it."""
        path, revision = self._source.path, self._source.current.revision
        nothing = {"text": None, "file_revision": None, "flaw": None}
        if isinstance(self._source, SharedPolicy) and self._source.text is not None:
            text = await trio.to_thread.run_sync(shown_text, self._source.text, limiter=self._readers)
            return {"revision": revision, "path": None, **nothing, "text": text, "file_revision": revision}
        if path is None:
            return {"revision": revision, "path": None, **nothing}
        read = await trio.to_thread.run_sync(_read, path, limiter=self._readers)
        return {"revision": revision, "path": str(path), **nothing, **read}

    def explain(self, ask: ExplainAsk) -> Answer:
        if not AGENT_ID.match(ask.agent):
            return NoAnswer(Code.MANIFEST_INVALID, "This is no agent's id.", "An agent is agent_<uuid>.")
        node_id = node_of(ask.tool)
        labels = UNLABELLED if node_id is None else self._labels_of(node_id)
        told = explain(self._source.current, ask.agent, ask.tool, labels)
        file = None if self._source.path is None else str(self._source.path)
        return {"file": file, **msgspec.to_builtins(told)}


def _read(path: Path) -> dict[str, Any]:
    """In a thread."""
    try:
        data = read_regular(path, POLICY_BYTES_MAX)
        if data is None or len(data) > POLICY_BYTES_MAX:
            return {"flaw": _flaw(None, "It is not a regular file, or too long.")}
        text = data.decode()
    except OSError:
        return {"flaw": _flaw(None, "It cannot be read.")}
    except UnicodeDecodeError:
        return {"flaw": _flaw(None, "It is not UTF-8.")}
    policy = parse(text)
    if not isinstance(policy, Policy):
        return {"file_revision": revision_of(text), "flaw": _flaw(policy.line, policy.message)}
    return {"file_revision": policy.revision, "text": shown_text(text)}


def _flaw(line: int | None, message: str) -> dict[str, Any]:
    return {"line": line, "message": message}
