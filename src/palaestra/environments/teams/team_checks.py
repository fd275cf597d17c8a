"""Checks of leaders, of who is there when, of networks and of groups; each says what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palaestra.environments.teams.team_file import Right, Team

SPEAKING = ("talk", "moderate", "bid")  # stages in which members speak


def wrong_leader(team: Team) -> str | None:
    """Return why the orchestrator or the supervisor cannot lead the team."""
    leaders: list[tuple[str, str, tuple[Right, ...]]] = []
    if team.orchestrator is not None:
        leaders.append(("orchestrator", team.orchestrator.member, ("act", "send")))
    if team.formation is not None:
        leaders.append(("host", team.formation.member, ("act", "send")))
    if team.supervisor is not None:
        leaders.append(("supervisor", team.supervisor.member, ("halt",)))
    for what, member, rights in leaders:
        if member not in team.members:
            known = ", ".join(team.members)
            return f"names '{member}' as its {what}, who is no member; name one of {known}"
        one = team.members[member]
        if (one.from_turn, one.until_turn, one.reserve) != (1, None, False):
            return f"has '{member}' as its {what}, who is not always there; leave its turns out"
        for right in rights:
            if right not in one.rights:
                return f"makes '{member}' its {what} without the right '{right}'; add it"
    if team.orchestrator is None:
        return None
    apart = [member for _, member, _ in leaders]
    if len(set(apart)) < len(apart):
        return f"has one member '{apart[0]}' to orchestrate and supervise; name two"
    workers = [member for name, member in team.members.items() if name not in apart]
    if not workers:
        return "has nobody to do what the orchestrator says; add a member"
    if not any({"act", "send"} & {*member.rights} for member in workers):
        return "has no worker with a right to act or to send; add it"
    return None


def wrong_attendance(team: Team) -> str | None:
    """Return why a turn would have a stage in which nobody is there."""
    for name, member in team.members.items():
        if member.until_turn is not None and member.until_turn < member.from_turn:
            return f"has a member '{name}' who leaves before it comes; correct its turns"
    turns = {1, *(m.from_turn for m in team.members.values())}
    turns |= {m.until_turn + 1 for m in team.members.values() if m.until_turn is not None}
    for turn in sorted(turns):
        there = team.there(turn, ())
        for number, stage in enumerate(team.stage, 1):
            if stage.do == "count":
                continue
            missing = not set(there) & set(team.taking_part(stage)) - {stage.by}
            if missing or (stage.by is not None and stage.by not in there):
                return (
                    f"lacks members in stage {number} ({stage.do}) in turn {turn}; let more of "
                    "them be there"
                )
    return None


def wrong_reserve(team: Team) -> str | None:
    """Return why members in reserve, or rights to bring them in, would have no effect."""
    able: set[str]
    if team.formation is not None:  # whose places are filled otherwise
        able = set()
    elif team.orchestrator is not None:
        able = {team.orchestrator.member}
    else:
        stages = [stage for stage in team.stage if stage.do in SPEAKING]
        able = {member for stage in stages for member in team.taking_part(stage)}
    reserve = team.reserve
    spawning = [name for name, member in team.members.items() if "spawn" in member.rights]
    for name in spawning:
        if name not in able or not reserve:
            return f"gives '{name}' the right 'spawn', which it cannot use; take it away"
    if reserve and not spawning and team.formation is None:
        who = "the orchestrator" if team.orchestrator is not None else "a member who talks"
        return f"has '{reserve[0]}' in reserve, whom nobody brings in; give 'spawn' to {who}"
    return None


def wrong_network(team: Team) -> str | None:
    """Return why members could not form a layered network or a network that routes."""
    if team.network is None and team.routing is None:
        return None
    for name, member in team.members.items():
        if "act" not in member.rights:
            return f"lets '{name}' propose actions without the right 'act'; add it"
        if (member.from_turn, member.until_turn) != (1, None):
            return f"has a network in which '{name}' is not always there; leave its turns out"
    if team.see != "all" or team.supervisor is not None:
        return "has a network with `see` or a supervisor, which need stages; leave them out"
    if team.network is not None and team.network.keep > len(team.members):
        return f"keeps {team.network.keep} of {len(team.members)} members; keep fewer"
    return None


def wrong_routing(team: Team) -> str | None:
    """Return why what a team has learned is not about its members."""
    if team.routing is None:
        return None
    edges, past = team.routing.edges, team.routing.past
    named = {*edges, *(target for targets in edges.values() for target in targets), *past}
    for stranger in sorted(named - team.members.keys()):
        return (
            f"has learned about '{stranger}', who is no member; take a member out with "
            "`palaestra team RUN --without MEMBER --to FILE`"
        )
    return None


def wrong_formation(team: Team) -> str | None:
    """Return why members could not find each other and form groups."""
    if team.formation is None:
        return None
    if team.see != "all" or team.supervisor is not None:
        return "forms groups with `see` or a supervisor, which need stages; leave them out"
    for name, member in team.members.items():
        if "send" not in member.rights:
            return f"lets '{name}' reply in groups without the right 'send'; add it"
        if "halt" in member.rights:
            return f"gives '{name}' the right 'halt', which groups do not use; take it away"
        if name == team.formation.member:
            continue
        if member.reserve and (member.skills or member.team):
            return f"gives '{name}' a reserve's place with its own skills or team; drop one of them"
        if not member.skills and not member.reserve:
            return f"has a member '{name}' whom no search finds; say its skills"
    if "places" in team.formation.model_fields_set and not team.reserve:
        return "says how places are filled, and has none; set `reserve = true` for some members"
    return None
