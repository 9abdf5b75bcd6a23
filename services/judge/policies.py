"""Policies as rules over time, and where a trajectory breaks them. docs/policies.md tells it at
length.

What a rule restricts counts as soon as it is attempted, and what it demands or excuses by counts
only when it was done; a pattern's own `ok` overrides both. In full:

- `never`: each thing that fits breaks it.
- `always`: each thing of the pattern's kind that does not fit breaks it.
- `requires`: a thing that fits breaks it unless an earlier one of the session fits `first`, when
  done, agrees in every value of `same`, and is not farther back than `within`. A value that
  either lacks agrees with nothing.
- `at_most`: among the things that fit, calls when done, those with equal values of `per` (one that
  is lacking equals another that is lacking) form a group; in each, all after the first `times`
  break it.
- `follows`: a thing that fits, a call when done, breaks it unless a later one fits `then` and
  agrees in `same`, not farther on than `within`. The attempt is enough: whether it succeeds is not
  in the agent's hands.
- `after`, `until`: things count only once `after` has happened, and no longer once `until` has,
  until `after` happens again.
- `unless`: a breach is none if the exception happened before it and agrees in its `same`; with
  `follows`, also if it happened while the other thing was still due.

All turns and all calls of the session count, in every conversation. What the agent does not report
cannot be told of it: where a rule hangs on that, it is neither kept nor broken but *unseen*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from schemas.moments import CallMatch, Moment
from schemas.policies import Always, AtMost, Follows, Policy, Requires, Within
from services.judge.moments import Point, Timeline, named
from services.judge.outcomes import canonical, same
from services.judge.trajectory import Trajectory

NO_TIME = "the session's start does not tell how the world's time passes"


@dataclass(frozen=True)
class Violation:
    """One breach: of which rule, in which turn, and the step that is it."""

    policy: str
    turn: int
    step: str
    words: str


@dataclass(frozen=True)
class Rulings:
    """What became of some policies."""

    violations: tuple[Violation, ...]
    """Every breach, in the order in which they happened."""
    unseen: tuple[tuple[str, str], ...]
    """Rules that this session can neither keep nor break, each with the reason."""


def violations(trajectory: Trajectory, policies: Iterable[Policy]) -> list[Violation]:
    """Every breach of the given policies, in the order in which they happened.

    Raises:
        MalformedBrief: a pattern cannot be looked up.
    """
    return list(rulings(trajectory, policies).violations)


def rulings(trajectory: Trajectory, policies: Iterable[Policy]) -> Rulings:
    """Every breach, and every rule that nothing can be told of.

    Raises:
        MalformedBrief: a pattern cannot be looked up.
    """
    timeline = Timeline(trajectory)
    found: list[tuple[int, Violation]] = []
    unseen: list[tuple[str, str]] = []
    for policy in policies:
        ruled = _ruled(timeline, policy)
        for breach in ruled.breaches:
            point = breach.point
            words = f"{policy.id}: {breach.words} ({point.step})"
            found.append((point.position, Violation(policy.id, point.turn, point.step, words)))
        unseen += ((policy.id, why) for why in dict.fromkeys(ruled.unseen))
    ordered = sorted(found, key=lambda item: item[0])
    return Rulings(tuple(violation for _, violation in ordered), tuple(unseen))


def told_unseen(unseen: Sequence[tuple[str, str]]) -> str:
    """Why some rules were neither kept nor broken, for a reason."""
    return "neither kept nor broken: " + "; ".join(f"{name}: {why}" for name, why in unseen)


@dataclass(frozen=True)
class _Breach:
    point: Point
    words: str
    until: int | None = None
    """Up to which position an exception still comes in time; None: only before."""


@dataclass
class _Ruled:
    breaches: list[_Breach] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)


def _ruled(timeline: Timeline, policy: Policy) -> _Ruled:
    ruled = _Ruled()
    if policy.never:
        for kind in policy.never.kinds:
            ruled.unseen += filter(None, [timeline.blind(policy.never, kind)])
            points = timeline.found(policy.never, kind)
            ruled.breaches += (_Breach(point, point.words) for point in points)
    else:
        (trigger,) = filter(None, (policy.always, policy.requires, policy.at_most, policy.follows))
        if why := timeline.blind(_kind_of(trigger)):
            return _Ruled(unseen=[why])
        ruled.breaches += _breaches(timeline, policy)
    _keep_in_scope(timeline, policy, ruled)
    hidden = list(_hidden(timeline, policy))
    if ruled.breaches and hidden:
        # They would be breaches, if what nobody can see did not happen.
        ruled.breaches, ruled.unseen = [], [*ruled.unseen, *hidden]
    return ruled


def _kind_of(trigger: Moment) -> Moment | CallMatch:
    """What has to be seen for a rule to say anything: `always` is about all of a kind."""
    if isinstance(trigger, Always) and trigger.call is not None:
        return CallMatch(tool=trigger.call.tool, actor=trigger.call.actor)
    return trigger


def _breaches(timeline: Timeline, policy: Policy) -> Iterator[_Breach]:
    if policy.always:
        yield from _always(timeline, policy.always)
    elif policy.requires:
        yield from _requires(timeline, policy.requires)
    elif policy.at_most:
        yield from _at_most(timeline, policy.at_most)
    elif policy.follows:
        yield from _follows(timeline, policy.follows, policy)


def _hidden(timeline: Timeline, policy: Policy) -> Iterator[str]:
    """Why breaches may be none after all: what would excuse them cannot be seen."""
    parts: list[Moment | CallMatch | None] = [policy.after, policy.until, policy.unless]
    parts += [rule.first for rule in (policy.requires,) if rule]
    parts += [rule.then for rule in (policy.follows,) if rule]
    yield from filter(None, (timeline.blind(part) for part in parts if part is not None))
    rule = policy.requires or policy.follows
    within = rule.within if rule else None
    if isinstance(within, Within) and within.seconds is not None and not timeline.tells_time:
        yield NO_TIME


def _keep_in_scope(timeline: Timeline, policy: Policy, ruled: _Ruled) -> None:
    """Leave out the breaches that do not count: out of scope, or excused."""
    openings = _done(timeline, policy.after)
    closings = _done(timeline, policy.until)
    # What cannot be seen to begin is taken as begun: `_hidden` says that nothing follows from it.
    always_open = policy.after is None or bool(timeline.blind(policy.after))
    excuses = _done(timeline, policy.unless)
    agree = policy.unless.same if policy.unless else ()

    def counts(breach: _Breach) -> bool:
        at = breach.point.position
        opened = max((p.position for p in openings if p.position < at), default=-1)
        closed = max((p.position for p in closings if p.position < at), default=-1)
        return (always_open or opened >= 0) and (closed < 0 or closed < opened)

    def excused(breach: _Breach) -> bool:
        last = breach.point.position if breach.until is None else breach.until
        return any(
            excuse.position != breach.point.position
            and excuse.position <= last
            and _agree(breach.point, excuse, agree)
            for excuse in excuses
        )

    ruled.breaches = [one for one in ruled.breaches if counts(one) and not excused(one)]


def _done(timeline: Timeline, moment: Moment | None) -> list[Point]:
    return [] if moment is None else timeline.found(moment, ok=True)


def _always(timeline: Timeline, rule: Always) -> Iterator[_Breach]:
    fitting = {point.position for point in timeline.found(rule)}
    for point in timeline.all_of_kind(rule):
        if point.position not in fitting:
            yield _Breach(point, f"{point.words}, which is not {named(rule)}")


def _requires(timeline: Timeline, rule: Requires) -> Iterator[_Breach]:
    firsts = timeline.found(rule.first, ok=True)
    for point in timeline.found(rule):
        earlier = [first for first in firsts if first.position < point.position]
        agreeing = [first for first in earlier if _agree(point, first, rule.same)]
        if any(_near(timeline, first, point, rule.within) for first in agreeing):
            continue
        words = f"{point.words} without {named(rule.first)} before it"
        words += _for_the_same(rule.same) + _in_words(rule.within)
        yield _Breach(point, words + _near_misses(agreeing, earlier))


def _near_misses(agreeing: Sequence[Point], earlier: Sequence[Point]) -> str:
    if agreeing:
        return f"; the last was {agreeing[-1].step}"
    return f"; {earlier[-1].step} was for another" if earlier else ""


def _at_most(timeline: Timeline, rule: AtMost) -> Iterator[_Breach]:
    done: Counter[tuple[str, ...]] = Counter()
    for point in timeline.found(rule, ok=True):
        group = tuple(
            canonical(point.values[name]) if name in point.values else "" for name in rule.per
        )
        done[group] += 1
        if done[group] > rule.times:
            values = f" for {', '.join(rule.per)} {', '.join(group)}" if rule.per else ""
            words = f"{point.words}, the {_ordinal(done[group])} time{values}"
            yield _Breach(point, f"{words}, and {_times(rule.times)} is the most")


def _follows(timeline: Timeline, rule: Follows, policy: Policy) -> Iterator[_Breach]:
    thens = timeline.found(rule.then)
    excuses = _done(timeline, policy.unless)
    for point in timeline.found(rule, ok=True):
        later = [then for then in thens if then.position > point.position]
        agreeing = [then for then in later if _agree(point, then, rule.same)]
        if any(_near(timeline, point, then, rule.within) for then in agreeing):
            continue
        words = f"{point.words} and was not followed by {named(rule.then)}"
        words += _for_the_same(rule.same) + _in_words(rule.within)
        late = f"; the next was {agreeing[0].step}" if agreeing else ""
        in_time = (
            excuse.position for excuse in excuses if excuse.position > point.position
            and _near(timeline, point, excuse, rule.within)
        )  # fmt: skip
        yield _Breach(point, words + late, until=max(in_time, default=point.position))


def _near(timeline: Timeline, one: Point, other: Point, within: int | Within | None) -> bool:
    """Whether `other` comes no farther after `one` than the bound says."""
    if within is None:
        return True
    bound = Within(calls=within) if isinstance(within, int) else within
    return (
        (bound.calls is None or other.calls - one.calls <= bound.calls)
        and (bound.turns is None or other.turn - one.turn <= bound.turns)
        and (
            bound.seconds is None
            # Without a clock nothing is near; what would be a breach then is told as unseen.
            or (
                timeline.tells_time
                and timeline.seconds(other) - timeline.seconds(one) <= bound.seconds
            )
        )
    )


def _agree(one: Point, other: Point, names: Iterable[str]) -> bool:
    return all(
        name in one.values and name in other.values and same(one.values[name], other.values[name])
        for name in names
    )


def _for_the_same(names: Sequence[str]) -> str:
    return f" for the same {', '.join(names)}" if names else ""


def _in_words(within: int | Within | None) -> str:
    if within is None:
        return ""
    bounds = {"calls": within} if isinstance(within, int) else within.model_dump(exclude_none=True)
    return " within " + " and ".join(f"{value} {name}" for name, value in bounds.items())


def _ordinal(number: int) -> str:
    ending = (
        "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
