"""Which agent an operator is when it tries a tool: the same for one `sub`, whatever token it comes with. Pure."""

import uuid

_NAMESPACE = uuid.UUID("6c1f3c3e-5b0a-5d0f-9f5e-2f1f6d7c9a41")  # fixed for good: policies name what follows from it


def agent_of(sub: str) -> str:
    return f"agent_{uuid.uuid5(_NAMESPACE, sub)}"
