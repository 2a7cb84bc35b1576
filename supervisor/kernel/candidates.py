"""Several tasks that try the same, of which one is chosen: best of N.

Each candidate is a task like any other. The group is one too, but it never starts: it waits for its candidates, is done once one of them
is chosen, and failed when none of them is done. What comes after the group so begins after the choice, and learns what the chosen one came
to. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

CANDIDATES_MAX = 16
"""Of one group."""
JUDGE_ROUNDS = (1, 2)
"""A judge sees the candidates twice, in two orders."""


CHOICE = "choice"
"""What a group waits for of which a person is to choose."""


class Decider(StrEnum):
    """Who chooses."""

    PERSON = "person"
    GATE = "gate"
    """The first by the ranking that passed its gate, once all candidates have ended."""


def candidate_name(group: str, number: int) -> str:
    """The name of a candidate in the plan; the first is number 1."""
    return f"{group}-{number}"


def judge_name(group: str, judge_round: int) -> str:
    """The name of the task that judges a group in one of JUDGE_ROUNDS."""
    return f"{group}-judge-{judge_round}"


def asks_choice(name: str) -> str:
    """What is said of a group, by its name, of which a person is to choose."""
    return f"waits for your choice: nightcrew compare {name}"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which candidate of a group was chosen. There is at most one of a group, and it never changes."""

    group: str
    """Full id of the group."""
    winner: str
    """Full id of its candidate."""
    epoch: int
    """The attempt of `winner` that was chosen."""
    tip: str
    """The commit that holds what that left; empty: it left nothing."""
    by: Decider
    why: str
    ranking: str
    """JSON of the ranking as it was then: `supervisor/results/ranking.py`."""
