"""How many tokens a request will take, learned from what the requests before it took.

- Input: bytes of the body over `ratio`, the bytes a token of this agent and model, and one mean deviation more: what was too much comes
  back with the first byte, what was too little may be refused. A token is never less than a byte: where the provider counts more tokens
  than there are bytes (context that it keeps itself, a picture by its address), the rest is `hidden`, and no matter of bytes. Both are
  medians of the last few turns, so one odd turn changes little. New agents begin with the median ratio of the model's agents, new models
  with 3.6.
- What is cached: the client's session had so many tokens in the provider's cache after its last turn, on one account, for five minutes.
- Output: mean plus one mean deviation of this agent's outputs, 1200 before the first; never `max_tokens`, which clients set to 64,000.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from supervisor.core.gateway.events import Arrived
from supervisor.core.gateway.types import Usage

FIRST_RATIO = 3.6
"""Bytes of JSON a token, measured on English prompts and code."""
FIRST_SPREAD = 0.2
"""Part by which a new agent's prompts may be larger than that: 3.0 bytes a token is the least that was seen of text."""
RATIOS = (1.0, 20_000.0)
"""Nothing outside is believed. An image is a million bytes and 1500 tokens."""
HIDDEN_MOST = 2_000_000.0
"""Tokens; no more is believed. The largest context that is sold holds half of it."""
LAST = 5
"""Turns of which the median is taken."""
FIRST_OUTPUT = 1200.0
FASTEST = 300.0
"""Tokens a second that a model puts out at most, for answers of which nobody knows how far they came. A guess on the safe side: what is
sold as fast is at about 100."""
GAIN = 0.25
"""Weight of the newest turn, once there were four."""
CACHE_S = 300.0
"""How long a provider keeps a prompt cached after its last use (Anthropic's and OpenAI's short form)."""
FORGET_S = 3600.0


class Habit:
    """What one agent's turns with one model were like."""

    __slots__ = ("_hidden", "_ratios", "deviation", "hidden", "mean", "ratio", "spread", "turns", "used_at")

    def __init__(self, ratio: float) -> None:
        self.ratio = ratio
        self.hidden = 0.0
        """Input tokens that its bodies do not show."""
        self._ratios = [ratio]
        self._hidden = [0.0]
        self.spread = FIRST_SPREAD
        """Mean deviation of the ratio, as a part of it."""
        self.mean = self.deviation = 0.0
        self.turns = 0
        self.used_at = 0.0

    @property
    def known(self) -> bool:
        """At least one turn of its own was seen."""
        return len(self._ratios) > 1 or self.turns > 0

    def saw_input(self, body_bytes: float, tokens: float) -> None:
        """One turn's body, and what the provider counted."""
        shown = tokens <= body_bytes
        hidden = 0.0 if shown else min(tokens - body_bytes / self.ratio, HIDDEN_MOST)
        if hidden or len(self._hidden) > 1:
            _keep(self._hidden, hidden)
            self.hidden = sorted(self._hidden)[(len(self._hidden) - 1) // 2]
        if shown:
            ratio = _within(body_bytes / tokens)
            self.spread += GAIN * (min(1.0, abs(ratio - self.ratio) / self.ratio) - self.spread)
            _keep(self._ratios, ratio)
            self.ratio = sorted(self._ratios)[len(self._ratios) // 2]

    def saw_output(self, tokens: float) -> None:
        """One turn wrote so much."""
        self.turns += 1
        gain = 1 / self.turns if self.turns < 1 / GAIN else GAIN
        off = abs(tokens - self.mean) if self.turns > 1 else tokens / 2
        self.mean += gain * (tokens - self.mean)
        self.deviation += gain * (off - self.deviation)


@dataclass(slots=True)
class Guess:
    """What one request will take. `warm`: tokens of `input` that count when it goes to the account `home`, where the rest is cached."""

    input: float
    output: float
    warm: float
    home: str
    habit: Habit
    """Of its agent and model: where what it took is learned."""
    mean_output: float
    """`output` with no caution."""


@dataclass(slots=True)
class _Warm:
    account: str
    tokens: float
    at: float


class Estimator:
    """All habits, and what is cached where."""

    def __init__(self) -> None:
        self._habits: dict[tuple[str, str], Habit] = {}
        self._models: dict[str, float] = {}
        self._warm: dict[tuple[str, str, str], _Warm] = {}

    def habit(self, agent: str, model: str) -> Habit:
        """One agent's habit with one model."""
        habit = self._habits.get((agent, model))
        if habit is None:
            habit = self._habits[agent, model] = Habit(self._typical(model))
        return habit

    def _typical(self, model: str) -> float:
        """The median ratio of the model's agents. What was known before counts as two agents, so that no single one decides."""
        before = self._models.get(model, FIRST_RATIO)
        ratios = [habit.ratio for (_, its), habit in self._habits.items() if its == model and habit.known]
        return sorted([before, before, *ratios])[(len(ratios) + 1) // 2]

    def guess(self, event: Arrived, now: float) -> Guess:
        """What this request will take. All numbers are at least 1."""
        habit = self.habit(event.agent.name, event.model)
        habit.used_at = now
        tokens = event.body_bytes / habit.ratio * (1 + habit.spread) + habit.hidden
        if tokens < 1:
            tokens = 1.0
        mean = habit.mean if habit.turns else FIRST_OUTPUT
        output = mean + habit.deviation
        if event.max_tokens is not None and event.max_tokens < output:
            output = float(event.max_tokens)
        if output < 1:
            output = 1.0
        mean = min(max(mean, 1.0), output)
        warm = self._warm.get((event.agent.name, event.model, event.session)) if self._warm else None
        if warm is None or now - warm.at > CACHE_S:
            return Guess(tokens, output, tokens, "", habit, mean)
        return Guess(tokens, output, max(1.0, tokens - warm.tokens), warm.account, habit, mean)

    def expected(self, event: Arrived, guess: Guess, account: str) -> Usage:
        """What this request will take on this account when it is like those before it: for an account, so with no margin."""
        habit = guess.habit
        tokens = round(event.body_bytes / habit.ratio + habit.hidden)
        output = habit.mean if habit.turns else self._typical_output(event.model)
        if event.max_tokens is not None and event.max_tokens < output:
            output = float(event.max_tokens)
        cached = 0
        if guess.home == account and (warm := self._warm.get((event.agent.name, event.model, event.session))):
            cached = min(round(warm.tokens), tokens)
        return Usage(input=max(1, tokens) - cached, output=max(1, round(output)), cache_read=cached)

    def _typical_output(self, model: str) -> float:
        """The median of what the model's agents put out."""
        means = sorted(habit.mean for (_, its), habit in self._habits.items() if its == model and habit.turns)
        return means[len(means) // 2] if means else FIRST_OUTPUT

    def saw_input(self, event: Arrived, habit: Habit, account: str, usage: Usage, now: float) -> None:
        """The provider said what the input was. `habit` is the guess's."""
        prompt = usage.input + usage.cache_read + usage.cache_write
        if prompt <= 0:
            return
        habit.saw_input(event.body_bytes, prompt)
        cached = usage.cache_read + usage.cache_write
        if cached > 0:
            self._warm[event.agent.name, event.model, event.session] = _Warm(account, cached, now)
        elif self._warm:
            self._warm.pop((event.agent.name, event.model, event.session), None)

    def forget(self, now: float) -> None:
        """Drop what was not used for an hour; what a model is like stays."""
        self._models = self._all_typical()
        self._warm = {key: warm for key, warm in self._warm.items() if now - warm.at <= CACHE_S}
        self._habits = {key: habit for key, habit in self._habits.items() if now - habit.used_at <= FORGET_S}

    def _all_typical(self) -> dict[str, float]:
        return {
            model: self._typical(model)
            for model in self._models.keys() | {model for (_, model), habit in self._habits.items() if habit.known}
        }

    def learned(self) -> dict[str, Any]:
        """JSON for `recall`."""
        habits = [[*key, h.ratio, h.mean, h.deviation, h.turns] for key, h in self._habits.items()]
        return {"models": self._all_typical(), "habits": habits}

    def recall(self, learned: object, now: float) -> None:
        """Take over what `learned` gave before a restart; what is not understood is left out."""
        if not isinstance(learned, dict):
            return
        with suppress(AttributeError, TypeError, ValueError):
            self._models.update({str(model): _within(float(ratio)) for model, ratio in learned["models"].items()})
        for entry in learned.get("habits") or ():
            with suppress(TypeError, ValueError):
                agent, model, ratio, mean, deviation, turns = entry
                habit = self._habits[str(agent), str(model)] = Habit(_within(float(ratio)))
                habit.mean, habit.deviation, habit.turns = max(0.0, float(mean)), max(0.0, float(deviation)), max(0, int(turns))
                habit.used_at = now


def _keep(seen: list[float], value: float) -> None:
    seen.append(value)
    if len(seen) > LAST:
        del seen[0]


def _within(ratio: float) -> float:
    least, most = RATIOS
    return least if ratio < least else most if ratio > most else ratio
