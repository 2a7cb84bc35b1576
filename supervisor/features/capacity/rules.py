"""The arithmetic of `nightcrew capacity --what-if`: how many agents limits, a machine, graphics cards and a purse carry. Pure.

It is a sheet of formulas over the premises and the figures before. What is shown of a figure is the formula that was reckoned, so that
the two cannot differ. A formula is left out when one of its names is not known. Units are seconds, tokens and US dollars; a GB is 10^9
bytes, and a month has 30 days, which are 720 hours.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from supervisor.kernel.capacity import AGENT, CEILING, PER_CORE
from supervisor.kernel.gateway_settings import Quota

GB = 1e9
CLOUD, LOCAL = "cloud", "local"

PREMISES: Mapping[str, tuple[float | None, str]] = {
    "agents": (None, "Agents that you want (default: as many as are carried)."),
    "requests": (7, "Requests of a task."),
    "input": (18_000, "Tokens of a request's prompt, with those that are read from a cache."),
    "output": (500, "Tokens of its answer."),
    "cached": (0, "Part of the prompt that is read from a cache, 0 to 1."),
    "cached_counts": (0, "Part of what is read from a cache that counts against limits: 0 (Anthropic) or 1 (OpenAI, Gemini)."),
    "seconds": (300, "Seconds of a task, at a provider."),
    "tools": (0.2, "Part of them in which no model works, 0 to 1."),
    "cores": (2, "Cores for agents."),
    "memory": (8, "GB of memory for agents, and for an engine without a card."),
    "agent_cores": (AGENT.cores, "Cores that an agent keeps busy."),
    "agent_memory": (AGENT.memory / GB, "GB that an agent takes."),
    "price_input": (None, "US dollars for a million tokens of input."),
    "price_output": (None, "The same of output."),
    "price_cache_read": (None, "The same of what is read from a cache."),
    "budget": (None, "US dollars a month for models."),
    "billions": (None, "Billions of weights of a local model."),
    "bits": (16, "Bits of a weight."),
    "weights": (None, "GB of all its weights (default: what follows from these two)."),
    "layers": (None, "Its layers that keep keys and values."),
    "kv_heads": (None, "Its heads for keys and values."),
    "head_dim": (None, "Numbers in each of these heads."),
    "kv_bytes": (2, "Bytes of such a number."),
    "context": (None, "Tokens of a slot of the engine (default: a prompt and its answer)."),
    "slots": (None, "Slots of the engine (default: as many as fit)."),
    "cards": (1, "Cards of the engine; 0: it runs on processors."),
    "vram": (0, "GB of a card."),
    "usable": (0.9, "Part of a card that the engine may take."),
    "bandwidth": (None, "GB a second of the memory that holds the weights."),
    "share": (0.4, "Part of the bandwidth that the engine reaches."),
    "prompt_speed": (0, "Tokens of prompts that the engine reads a second (0: not known, their time is not counted)."),
    "slowest": (5, "Tokens a second that each answer needs at least."),
    "hardware": (None, "US dollars that own hardware costs."),
    "months": (36, "Months for which it serves."),
    "hourly": (0.1, "US dollars of an hour in which it runs: power, or rent."),
}
"""Every number that a person may give: what is assumed without it (None: it is not known), and what it is."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the sheet, before and after it was reckoned."""

    name: str
    unit: str
    formula: str
    """An expression of Python over premises, figures before it, `ceil`, `min` and `max`. Once it was reckoned: also with the numbers."""
    more: str = ""
    """The figure says how many agents something carries, and this is what to add for more of them."""
    value: float | None = None
    """None: the formula divides by 0, so there is no such figure."""


_MACHINE = (
    # `PER_CORE` agents that keep a core busy may share it: supervisor/kernel/capacity.py.
    Figure("machine_cores", "agents", f"cores * {PER_CORE:g} / agent_cores", "a second machine"),
    Figure("machine_memory", "agents", "memory / agent_memory", "more memory, or a second machine"),
)
_CLOUD = (
    Figure("rate", "requests a minute of an agent", "60 * requests / seconds"),
    Figure("request_time", "s", "seconds * (1 - tools) / requests"),
    # Little's law: what is under way is the rate times the time that each takes. So a bound on what is under way bounds no rate.
    Figure("under_way", "requests of an agent at once", "rate / 60 * request_time"),
    Figure("new", "tokens of a prompt from no cache", "input * (1 - cached)"),
    # Anthropic's limits do not count cache reads, OpenAI's and Gemini's do: docs/gateway.md.
    Figure("counted", "tokens of a prompt against limits", "new + (input - new) * cached_counts"),
    # The price of a million tokens of each kind: the gateway's table, from genai-prices.
    Figure("task_cost", "$", "requests * (new * price_input + (input - new) * price_cache_read + output * price_output) / 1000000"),
    Figure("agent_cost", "$ a month", "720 * 3600 / seconds * task_cost"),
    Figure("cloud_budget", "agents", "budget / agent_cost", "a larger budget, or a cheaper model"),
)
_FIT = (
    # Each layer keeps a key and a value of each head for each token of a slot.
    Figure("token_kv", "bytes", "2 * layers * kv_heads * head_dim * kv_bytes"),
    Figure("slot_kv", "GB", "token_kv * context / 1000000000"),
    Figure("vram_needed", "GB for N agents", "weights + n * slot_kv"),
    # A model that is too large for a card is split over several; the cards that are left carry copies.
    Figure("room", "GB of a card, or of the machine", "vram * usable if cards else memory"),
    Figure("each", "GB of an agent", "slot_kv if cards else slot_kv + agent_memory"),
    Figure("split", "cards a copy", "max(1, ceil((weights + each) / room))"),
    Figure("copies", "copies of the model", "max(1, cards) // split"),
    Figure("local_room", "agents", "copies * ((split * room - weights) // each)", "a second card, or a larger one"),
    Figure("local_slots", "agents", "slots", "more slots"),
    # A step reads the weights once, and the KV of each stream: half of its answer is there on average.
    Figure("reach", "GB a second", "bandwidth * share * split"),
    Figure("weights_step", "s", "weights / reach"),
    Figure("stream_step", "s of each stream", "(input + output / 2) * token_kv / 1000000000 / reach"),
)
_WORK = (
    # As if all agents asked at the same time, which is the slowest case.
    Figure("local_speed", "tokens a second", "streams / step"),
    Figure("prompt", "s of a request; 0: not known and not counted", "new * local_agents / copies / prompt_speed if prompt_speed else 0"),
    Figure("answer", "s of a request", "output * step * local_agents / streams"),
    Figure("local_seconds", "s of a task", "seconds * tools + requests * (prompt + answer)"),
)
_OWNED = (
    Figure("fixed", "$ a month", "hardware / months"),
    Figure("local_cost", "$ an hour, busy all the time", "fixed / 720 + hourly"),
    Figure("local_task_cost", "$", "local_cost / local_tasks"),
    # From so many hours on what the cloud takes for the same work is more than what is paid whether or not the hardware works.
    Figure("break_even", "hours a month, which has 720: more is never", "fixed / max(0, local_price - hourly)"),
    Figure("break_even_tokens", "tokens a month", "break_even * local_tokens"),
)
_TAKES = {"requests": "1", "input": "counted", "output": "output", "tokens": "(counted + output)"}
_FUNCTIONS = {"ceil": math.ceil, "min": min, "max": max}


@dataclass(frozen=True, slots=True)
class Speed:
    """How long an engine takes for a step, in which each of its streams gets one token."""

    points: Sequence[tuple[float, float]]
    """Streams, and seconds of a step, by rising streams; at least two."""

    def step_s(self, streams: float) -> float:
        """Return the seconds of a step: a straight line between neighbouring points, and through the outermost two beyond them.

        Reading the weights takes the same time for any number of streams, and each stream adds its own: a step takes about
        a + b x streams. b changes where an engine takes another kernel, so each pair of points has its own line.
        """
        above = next((at for at, (n, _) in enumerate(self.points) if at and streams <= n), len(self.points) - 1)
        (n, t), (more, longer) = self.points[above - 1 : above + 1]
        return max(1e-9, t + (streams - n) * (longer - t) / (more - n))

    def streams(self, slowest: float) -> int:
        """Return the most streams of which each still gets `slowest` tokens a second; at most `CEILING`."""
        return next((n for n in range(CEILING) if self.step_s(n + 1) * slowest > 1 + 1e-9), CEILING)


def measured(tokens_per_s: Mapping[int, float]) -> Speed:
    """Return the speed of an engine that gave so many tokens a second, by the number of streams. With one point alone, more streams add
    nothing. Raises ValueError where a number is not above 0, or there is none."""
    if min([*tokens_per_s, *tokens_per_s.values()], default=0) <= 0:
        raise ValueError("tokens_per_s needs streams and tokens a second, all above 0")
    points = [(float(n), n / tokens) for n, tokens in sorted(tokens_per_s.items())]
    return Speed(points if len(points) > 1 else [(0.0, 0.0), *points])


@dataclass(frozen=True, slots=True, order=True)
class Carried:
    """How many agents a resource carries, and what to add for more."""

    agents: int
    name: str
    more: str


class Sheet:
    """The arithmetic of one question."""

    def __init__(self, given: Mapping[str, float], limits: Iterable[Quota] = (), speed: Speed | None = None) -> None:
        """`given`: premises; the others are assumed. `limits` are named as the keys of `_TAKES`. `speed` is a measured one; without it, it
        follows from the bandwidth."""
        self.values = {**{name: assumed for name, (assumed, _) in PREMISES.items() if assumed is not None}, **given}
        self.steps: list[Figure] = []
        self.sides = [CLOUD]
        self._reckon(*_MACHINE, *_CLOUD)
        for limit in limits:
            takes, name = _TAKES[limit.name], f"{limit.name}_in_{limit.period_s:.0f}_s"
            self._reckon(
                Figure(name, "tasks a day", f"{limit.limit:g} * {86400 / limit.period_s:g} / (requests * {takes})"),
                Figure(f"cloud_{name}", "agents", f"{limit.limit:g} * 60 / {limit.period_s:g} / (rate * {takes})", "a second account"),
            )
        self._hour(CLOUD, "seconds")
        if "weights" not in self.values:
            self._reckon(Figure("weights", "GB", "billions * bits / 8"))
        if "weights" in self.values:
            self.sides.append(LOCAL)
            self._local(speed)

    def carries(self, side: str) -> list[Carried]:
        """Return what each resource of a side carries. The first one binds."""
        steps = (one for one in self.steps if one.more and one.name.startswith((side, "machine")))
        return sorted(Carried(max(0, math.floor(one.value + 1e-9)), one.name, one.more) for one in steps if one.value is not None)

    def _reckon(self, *figures: Figure) -> None:
        names = _FUNCTIONS | self.values
        for one in figures:
            code = compile(one.formula, one.name, "eval")
            if not names.keys() >= {*code.co_names}:
                continue
            numbers = re.sub("[a-z_]+", lambda name: _n(self.values[name[0]]) if name[0] in self.values else name[0], one.formula)
            try:
                value = float(eval(code, {"__builtins__": {}}, names))  # noqa: S307 - only formulas of this file
                names[one.name] = self.values[one.name] = value
            except ZeroDivisionError:  # what follows from it is left out as well
                value = None
            self.steps.append(replace(one, value=value, formula=f"{one.formula} = {numbers}"))

    def _agents(self, side: str) -> float:
        """Return as many agents as are wanted, or else as are carried."""
        carried = min((one.agents for one in self.carries(side)), default=0)
        return self.values.setdefault(f"{side}_agents", self.values.get("agents", carried))

    def _hour(self, side: str, seconds: str) -> None:
        self._agents(side)
        self._reckon(
            Figure(f"{side}_tasks", "tasks an hour", f"{side}_agents * 3600 / {seconds}"),
            Figure(f"{side}_requests", "requests a month", f"{side}_tasks * requests * 720"),
            Figure(f"{side}_tokens", "tokens an hour", f"{side}_tasks * requests * (input + output)"),
            Figure(f"{side}_price", "$ an hour at the provider's price", f"{side}_tasks * task_cost"),
        )

    def _local(self, speed: Speed | None) -> None:
        values = self.values
        values |= {"n": values.get("agents", 1), "copies": 1}
        prompt = values["input"] + values["output"]
        if values.setdefault("context", prompt) < prompt:
            self._reckon(Figure("local_context", "agents: a slot is shorter than a prompt and its answer", "0", "slots of more tokens"))
        self._reckon(*_FIT)
        if speed is None and "stream_step" in values:
            speed = Speed([(n, values["weights_step"] + n * values["stream_step"]) for n in (1, 2)])
        if speed is not None:
            values["streams_in_pace"] = speed.streams(values["slowest"])
            self._reckon(Figure("local_pace", "agents", "max(1, copies) * streams_in_pace", "a second card, or a faster one"))
        slots = [one.agents for one in self.carries(LOCAL) if one.name in ("local_room", "local_slots")]
        streams = min([*slots, self._agents(LOCAL)])
        if speed is None or not streams:
            return
        values |= {"streams": streams, "step": speed.step_s(streams / values["copies"])}
        self._reckon(*_WORK)
        self._hour(LOCAL, "local_seconds")
        self._reckon(*_OWNED)


def _n(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}"
