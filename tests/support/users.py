"""Users to play, and a loop that lets a simulator talk to a scripted agent."""

from __future__ import annotations

from collections.abc import Callable

from schemas.briefs import UserBrief
from schemas.user import Conversation, Fact, Persona, UserGoal
from services.user_simulator.agenda import plan
from services.user_simulator.simulator import (
    AgentSaid,
    History,
    UserMove,
    UserSaid,
    current_conversation,
)
from services.user_simulator.standing import MAX_CONFIRMATIONS, MAX_WAITS

STYLES = ("plain", "terse", "rambling", "hostile", "confused")
ORDER = "ORD-20417"
EMAIL = "jo.baker@example.org"
RETURN = UserGoal(
    say=("I want to return the headphones I bought", "I need to send my headphones back"),
    done_when=(r"return (has been|was) (created|booked)",),
)
REFUND = UserGoal(
    say=("When do I get the money back for order {order_id}?",), done_when=(r"within \d+ days",)
)
FACTS = {
    "order_id": Fact(value=ORDER),
    "email": Fact(value=EMAIL),
    "new_email": Fact(value="jo.new@example.org"),
    "reason": Fact(value="cracked", ask=(r"why\b.*return",), say=("The left side is {value}.",)),  # type: ignore[arg-type]
    "gift_wrap": Fact(value=True),
}


def conversation(*goals: UserGoal, pushes: tuple[str, ...] = (), consents: bool = True,
                 after: str = "0s") -> Conversation:  # fmt: skip
    return Conversation(goals=goals or (RETURN,), pushes=pushes, consents=consents, after=after)


def brief(
    *conversations: Conversation,
    style: str = "plain",
    patience: int = 4,
    volunteers: float = 0.0,
    seed: int = 1,
    facts: dict[str, Fact] | None = None,
    narrative: str = "",
    description: str = "",
) -> UserBrief:
    return UserBrief(
        narrative=narrative,
        persona=Persona(
            name=style,
            style=style,
            patience=patience,
            volunteers=volunteers,  # type: ignore[arg-type]
            description=description,
        ),
        facts=FACTS if facts is None else facts,
        conversations=conversations or (conversation(),),
        seed=seed,
    )


def after(user: UserBrief, *replies: str) -> UserMove:
    """The user's move after these answers of the agent, all before having been played."""
    return dialogue(user, *replies)[-1]


def dialogue(user: UserBrief, *replies: str) -> list[UserMove]:
    """Every move of the user, until the answers run out or the user leaves for good."""
    moves: list[UserMove] = []
    history: History = ()
    left = list(replies)
    while True:
        move = plan(user, history)
        moves.append(move)
        history = heard(history, move)
        if is_over(move):
            return moves
        if move.ending is None:
            if not left:
                return moves
            history = (*history, AgentSaid(history[-1].conversation, left.pop(0)))


def play(user: UserBrief, agent: Callable[[str, int], str], bound: int) -> tuple[History, UserMove]:
    """Play to the end against an agent; fails when there is none within the bound."""
    history: History = ()
    for number in range(1, bound + 1):
        move = plan(user, history)
        history = heard(history, move)
        if is_over(move):
            return history, move
        if move.ending is None:
            said = AgentSaid(history[-1].conversation, agent(move.text, number))
            history = (*history, said)
    raise AssertionError(f"no end within {bound} turns: {history[-6:]}")


def bound(user: UserBrief) -> int:
    """User turns after which this user must have left, whatever the agent does."""
    turns = 0
    for one in user.conversations:
        # A fact is asked for once, and corrected once, as what is wanted may be.
        progress = len(one.goals) * (1 + MAX_CONFIRMATIONS) + 2 * len(user.facts) + 1
        turns += 2 + (progress + 1) * user.persona.patience
        turns += progress + len(one.pushes) + MAX_WAITS * len(one.goals)
    return turns


def heard(history: History, move: UserMove) -> History:
    current = current_conversation(history)
    return (*history, UserSaid(current, move.text, closing=move.ending is not None))


def is_over(move: UserMove) -> bool:
    return move.invalid is not None or move.ending in ("goal_met", "gave_up")
