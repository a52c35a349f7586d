"""Members against a naive model: any sequence of what people and operators do, with time and restarts between."""

from dataclasses import dataclass, field

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.member.given import Invited, Issued
from actors.member.members import Members
from tests.actors.member.people import DAY_S, READ, Town, passkey

OVERLAP_S, IDLE_S, WHOLE_S, INVITE_S = 30, 30 * DAY_S, 90 * DAY_S, DAY_S


@dataclass
class Family:
    begun_s: float
    refreshed_s: float
    current: str
    tokens: list[str]
    spent: str | None = None
    spent_s: float = 0.0

    def stands(self, now_s: float) -> bool:
        return now_s < min(self.refreshed_s + IDLE_S, self.begun_s + WHOLE_S)


@dataclass
class Person:
    tenant: str
    agent_id: str
    invite: tuple[str, float] | None
    passkeys: set[bytes] = field(default_factory=set)
    families: dict[str, Family] = field(default_factory=dict)


@dataclass
class Model:
    people: dict[str, Person] = field(default_factory=dict)
    links: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    names: int = 0

    def standing(self, now_s: float) -> set[str]:
        return {gid for one in self.people.values() for gid, family in one.families.items() if family.stands(now_s)}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "invite",
                "again",
                "keep",
                "join",
                "join",
                "issue",
                "issue",
                "refresh",
                "refresh",
                "refresh",
                "revoke",
                "end",
                "restart",
                "wait",
            ]
        ),
        st.integers(0, 7),
        st.sampled_from([0.0, 1.0, 29.0, 31.0, 600.0, 3_600.0, DAY_S - 1.0, 20.0 * DAY_S, 31.0 * DAY_S]),
    ),
    max_size=40,
)


def pick(things: list[str], number: int) -> str:
    return things[-1 - number % len(things)] if things else "none"


@settings(max_examples=120, deadline=None)
@given(STEPS)
def test_members_and_grants_are_as_a_naive_model_has_them(steps: list[tuple[str, int, float]]) -> None:
    trio.run(_run, steps)


async def _run(steps: list[tuple[str, int, float]]) -> None:
    town, model, now_s = Town(), Model(), 0.0
    members = await town.members()
    for what, number, wait_s in steps:
        member_id = pick(list(model.people), number)
        person = model.people.get(member_id)
        if what == "wait":
            town.passes(wait_s)
            now_s += wait_s
        elif what == "restart":
            members = await town.members()
        elif what == "invite":
            made = await members.invite(f"tenant-{number % 2}", frozenset({READ}), "", "ops")
            assert isinstance(made, Invited)
            one = Person(made.member.tenant, made.member.agent_id, (made.invite, now_s + INVITE_S))
            model.people[made.member.member_id] = one
            model.links.append(made.invite)
        elif what in ("again", "keep"):
            made = await members.invite_again(member_id, "ops", keeps_passkeys=what == "keep")
            assert isinstance(made, Invited) is (person is not None)
            if person is not None and isinstance(made, Invited):
                person.invite = made.invite, now_s + INVITE_S
                model.links.append(made.invite)
                if what == "again":
                    person.passkeys, person.families = set(), {}
        elif what == "join":
            await _join(members, model, pick(model.links, number), now_s)
        elif what == "issue" and person is not None:
            name = min(person.passkeys, default=b"none")
            given_ = await members.issue(member_id, name, frozenset({READ}), "", "/mcp")
            assert isinstance(given_, Issued) is bool(person.passkeys)
            if isinstance(given_, Issued):
                token = given_.refresh_token
                person.families[given_.grant_id] = Family(now_s, now_s, token, [token])
                model.tokens.append(token)
        elif what == "refresh":
            await _refresh(members, model, pick(model.tokens, number), now_s)
        elif what == "revoke":
            gone = await members.revoke(member_id, "ops")
            assert (gone is None) is (person is not None)
            model.people.pop(member_id, None)
        elif what == "end" and person is not None and person.families:
            gid = min(person.families)
            await members.end_grant(gid)
            del person.families[gid]
        _compare(members, model, now_s)
    _compare(await town.members(), model, now_s)


async def _join(members: Members, model: Model, link: str, now_s: float) -> None:
    invited = [one for one in model.people.values() if one.invite is not None and one.invite[0] == link]
    is_good = bool(invited) and invited[0].invite is not None and now_s < invited[0].invite[1]
    model.names += 1
    name = f"passkey {model.names}".encode()
    done = await members.join(link, passkey(name))
    assert (type(done).__name__ == "Member") is is_good
    if is_good:
        invited[0].invite = None
        invited[0].passkeys.add(name)


async def _refresh(members: Members, model: Model, token: str, now_s: float) -> None:
    found = [
        (one, gid, family)
        for one in model.people.values()
        for gid, family in one.families.items()
        if token in family.tokens
    ]
    done = await members.refresh(token, None)
    if not found or not found[0][2].stands(now_s):
        assert not isinstance(done, Issued)
        return
    person, gid, family = found[0]
    is_again = token == family.spent and now_s < family.spent_s + OVERLAP_S
    assert isinstance(done, Issued) is (token == family.current or is_again)
    if not isinstance(done, Issued):
        del person.families[gid]
        return
    assert (done.grant_id, done.member.agent_id) == (gid, person.agent_id)
    if not is_again:
        family.spent, family.spent_s = token, now_s
    family.current, family.refreshed_s = done.refresh_token, now_s
    family.tokens.append(done.refresh_token)
    model.tokens.append(done.refresh_token)


def _compare(members: Members, model: Model, now_s: float) -> None:
    members.end_what_is_over()
    assert members.standing == model.standing(now_s)
    assert {one.member_id: (one.tenant, one.agent_id) for one in members} == {
        member_id: (one.tenant, one.agent_id) for member_id, one in model.people.items()
    }
    for member_id, one in model.people.items():
        for name in one.passkeys:
            found = members.of_passkey(name)
            assert found is not None
            assert found.member_id == member_id
        if one.invite is not None:
            assert (members.of_invite(one.invite[0]) is not None) is (now_s < one.invite[1])
