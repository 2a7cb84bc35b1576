"""Admission for inference engines: slots in place of limits, in virtual time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as how
from hypothesis import strategies as st

from supervisor.gateway.admission.engine_slots import INTERRUPTS, TRIES
from supervisor.gateway.admission.traffic import ENGINES, Traffic
from supervisor.gateway.admission.types import (
    NOTHING_OBSERVED,
    SENT,
    Agent,
    Arrived,
    Began,
    BreakerState,
    Command,
    End,
    Ended,
    EngineChanged,
    Event,
    Interrupt,
    LaneKey,
    PoolView,
    Refusal,
    Refused,
    Responded,
    Send,
    Shown,
    Tick,
    TurnAway,
    Usage,
    Withdrawn,
)
from supervisor.kernel.engines import Engine, EngineKind, EngineRecord, EngineState
from supervisor.kernel.gateway_settings import Api, KeySource, Upstream
from supervisor.kernel.states import TaskClass
from tests.kernel.gateway.playbook import BATCH, INTERACTIVE, NORMAL, UNKNOWN, After, Playbook, away, sends
from tests.kernel.gateway.playbook import settings as settings_of
from tests.rounds import examples

STARTING, READY, FAILED, STOPPED = EngineState.STARTING, EngineState.READY, EngineState.FAILED, EngineState.STOPPED
TOOK = Usage(1000, 200)


def engine(name: str = "e", kind: EngineKind = EngineKind.LLAMACPP, slots: int = 2, context: int = 8192, *models: str) -> Engine:
    return Engine(name, kind, "m.gguf", models=models or ("m",), slots=slots, context=context)


def upstreams(*engines: Engine) -> tuple[Upstream, ...]:
    """As the settings make them: one for each API, with one account."""
    return tuple(
        Upstream(f"{one.name}.{api}", api, "", KeySource("none"), one.name, one.models, learn=False, engine=one)
        for one in engines
        for api in (Api.OPENAI, Api.ANTHROPIC)
    )


def record(state: EngineState = READY, name: str = "e", **facts: Any) -> EngineChanged:
    return EngineChanged(name, EngineRecord(name, state, **facts))


def play(*engines: Engine, ready: bool = True, **policy: Any) -> Playbook:
    made = engines or (engine(),)
    book = Playbook(UNKNOWN, *upstreams(*made), **policy)
    return book >> [record(name=one.name) for one in made] if ready else book


def ask(
    ticket: int, task_class: TaskClass = NORMAL, agent: str = "", *, api: Api = Api.OPENAI, via: str = "e", model: str = "m", **facts: Any
) -> Arrived:
    """A request of about 1000 tokens."""
    who = Agent(agent or f"{task_class}", 1, task_class)
    return Arrived(ticket, who, LaneKey(api, model), model, (f"{via}.{api}",), facts.pop("size", 3600), **facts)


def sent(ticket: int, via: str = "e.openai", attempt: int = 1, *, withhold: bool = False) -> Send:
    return Send(ticket, via, attempt, withhold=withhold)


def view(book: Playbook, name: str = "e") -> PoolView:
    return next(one for one in book.traffic.view(book.now).pools if one.key.account == name)


def done(ticket: int) -> Ended:
    return Ended(ticket, End.SERVED, TOOK)


# Slots ----------------------------------------------------------------------------------------------------------------------------


def test_a_request_is_sent_exactly_when_a_slot_is_free() -> None:
    book = play() >> [ask(n) for n in range(4)] << sent(0) << sent(1) >> After(100) >> done(1) << sent(2) >> done(0) << sent(3)
    assert book
    assert view(book).dimensions[0].reserved == 2


def test_both_apis_and_all_models_share_the_slots_in_one_order() -> None:
    book = play(engine("e", EngineKind.LLAMACPP, 1, 8192, "m", "n"))
    book = (
        book
        >> ask(0)
        << sent(0)
        >> ask(1, BATCH, model="n")
        >> ask(2, api=Api.ANTHROPIC)
        >> ask(3, INTERACTIVE, api=Api.ANTHROPIC, model="n")
    )
    assert book >> done(0) << sent(3, "e.anthropic") >> done(3) << sent(2, "e.anthropic") >> done(2) << sent(1, withhold=True)


def test_a_burst_is_sent_without_any_pause_of_our_own() -> None:
    book = play(engine(slots=16))
    found = sends(book.tell([ask(n, agent=f"a{n}") for n in range(50)]))
    assert found == list(range(16))
    for n in range(50):
        found += sends(book.tell(done(n)))
    assert found == list(range(50))
    assert book.traffic.wakes_at(book.now) is None or book.traffic.view(book.now).queued[ENGINES] == 0


def test_what_the_engine_says_of_its_slots_goes_before_the_settings() -> None:
    book = play(ready=False) >> record(slots=3)
    assert book >> [ask(n) for n in range(4)] << sent(0) << sent(1) << sent(2)


def test_a_request_goes_to_the_engine_that_has_most_free_slots() -> None:
    book = play(engine("e"), engine("f"))
    both = [Arrived(n, Agent("a", 1), LaneKey(Api.OPENAI, "m"), "m", ("e.openai", "f.openai"), 3600) for n in range(5)]
    assert book >> both << sent(0) << sent(1, "f.openai") << sent(2) << sent(3, "f.openai") >> done(1) << sent(4, "f.openai")


def test_one_full_engine_holds_no_request_of_another_back() -> None:
    book = play(engine("e", EngineKind.LLAMACPP, 1), engine("f", EngineKind.LLAMACPP, 1))
    assert book >> [ask(0), ask(1), ask(2, via="f")] << sent(0) << sent(2, "f.openai")


def test_an_engine_has_no_breaker_and_learns_nothing() -> None:
    book = play() >> ask(0) << sent(0)
    for attempt in range(2, TRIES):
        book = book >> Refused(0, Refusal.RATE_LIMITED) >> After(60) << sent(0, attempt=attempt)
    assert book >> ask(1, agent="other") << sent(1)
    assert view(book).breaker is BreakerState.CLOSED
    assert book.traffic.learned()["pools"][0]["limits"] == {}


# Order ----------------------------------------------------------------------------------------------------------------------------


def test_agents_of_one_class_take_turns() -> None:
    book = play(engine(slots=1)) >> ask(0, agent="z") << sent(0)
    book.tell([ask(n, agent="greedy") for n in range(1, 21)] + [ask(n, agent="modest") for n in range(21, 31)])
    order, last = [], 0
    for _ in range(20):
        (last,) = sends(book.tell(done(last)))
        order.append("modest" if last > 20 else "greedy")
    assert Counter(order) == {"greedy": 10, "modest": 10}


def test_batch_gets_its_share_while_others_ask_without_end() -> None:
    book = play(engine(slots=1), batch_share=0.2) >> ask(0, agent="z") << sent(0)
    book.tell([ask(n, agent="normal") for n in range(1, 101)] + [ask(n, BATCH) for n in range(101, 201)])
    last, batch = 0, 0
    for _ in range(60):
        (last,) = sends(book.tell(done(last)))
        batch += last > 100
    assert 9 <= batch <= 14, f"{batch} of 60 were batch"


# What does not fit ----------------------------------------------------------------------------------------------------------------


def test_a_request_that_does_not_fit_a_slot_is_answered_at_once() -> None:
    book = play(engine(context=2048)) >> [ask(0), ask(1)] << sent(0) << sent(1)
    found = book.tell(ask(2, max_tokens=1049))
    assert found == [away(2, 400)]
    assert "exceed context limit: 1000 + 1049 > 2048" in found[0].why  # type: ignore[union-attr]
    assert "engine e" in found[0].why  # type: ignore[union-attr]
    assert book >> ask(3, max_tokens=1048) >> done(0) << sent(3), "it fits exactly"


def test_a_prompt_longer_than_a_slot_is_called_too_long() -> None:
    found = play(engine(context=500)).tell(ask(0))
    assert "prompt is too long: 1000 tokens > 500 maximum" in found[0].why  # type: ignore[union-attr]


def test_the_estimate_follows_what_the_engine_counted() -> None:
    book = play(engine(context=2000))
    for n in range(5):
        book = book >> ask(n, max_tokens=900) << sent(n) >> Ended(n, End.SERVED, Usage(2400, 1))
    assert book >> ask(9, max_tokens=900) << away(9, 400), "1.5 bytes a token, and not 3.6"
    book = book >> ask(10, size=1600) << sent(10) >> Ended(10, End.SERVED, Usage(400, 1))
    assert book >> ask(11, max_tokens=900) << sent(11), "what may fit is not refused"


def test_a_smaller_context_that_the_engine_says_turns_away_who_waits() -> None:
    book = play(ready=False) >> ask(0, max_tokens=2000) >> record(STARTING)
    assert book >> record(context=2048) << away(0, 400)


def test_nothing_is_known_of_an_adopted_engines_context_until_it_says() -> None:
    book = play(engine("e", EngineKind.ADOPTED, 2, 512), ready=False) >> record()
    assert book >> ask(0) << sent(0) >> record(context=512) >> ask(1) << away(1, 400)


def test_tools_are_refused_where_the_template_has_no_place_for_them() -> None:
    book = play(ready=False) >> [ask(0, tools=True), ask(1)]
    found = book.tell(record(tools=False))
    assert found == [away(0, 400), sent(1)]
    assert "engine e" in found[0].why and "no place for tools" in found[0].why  # type: ignore[union-attr]
    assert book >> record(tools=True) >> ask(2, tools=True) << sent(2)


# The engine's life ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("states", [[], [STOPPED], [STARTING], [STOPPED, STARTING]])
def test_requests_wait_while_the_engine_is_stopped_or_starts(states: list[EngineState]) -> None:
    book = play(ready=False) >> [record(state) for state in states] >> ask(0) >> After(100)
    assert book
    assert view(book).waiting == 1
    assert book >> record() << sent(0)


def test_the_time_that_an_engine_takes_to_start_counts() -> None:
    assert play(ready=False, hold_s=60.0) >> ask(0) >> After(60.0) << away(0, 429)


def test_an_engine_that_cannot_start_answers_with_its_reason() -> None:
    book = play(ready=False) >> ask(0) >> record(STARTING)
    found = book.tell(record(FAILED, why="its weights cannot be loaded"))
    assert found == [away(0, 503, retry_after_s=None)]
    assert found[0].why == "the engine e does not run: its weights cannot be loaded"  # type: ignore[union-attr]
    assert book >> ask(1) << away(1, 503)
    assert book >> record(STARTING) >> ask(2) >> record() << sent(2), "a start is under way: it waits again"


def test_a_crash_is_waited_out_once_and_no_more() -> None:
    book = play() >> [ask(n) for n in range(3)] << sent(0) << sent(1) >> [record(FAILED, why="killed")] * 2 >> ask(3) >> record(STARTING)
    assert book, "it was ready before, and is started again"
    assert book >> record(STARTING)
    book = book >> Ended(0, End.CUT, None) >> Refused(1, Refusal.UNREACHABLE)
    book = book >> record(FAILED, why="killed") << away(1, 503) << away(2, 503) << away(3, 503)
    assert book


def test_requests_of_an_engine_that_died_are_sent_again() -> None:
    book = play() >> [ask(0), ask(1)] << sent(0) << sent(1) >> Responded(0, NOTHING_OBSERVED)
    book = book >> [Refused(0, Refusal.UNREACHABLE), Refused(1, Refusal.UNREACHABLE), record(FAILED), record(STARTING)]
    assert sorted(sends(book.tell(record()) + book.tell(After(5)))) == [0, 1]


def test_a_request_on_which_the_engine_fails_ends_with_a_reason() -> None:
    book, found = play() >> ask(0) << sent(0), list[Command]()
    for _ in range(TRIES):
        found += book.tell(Refused(0, Refusal.SERVER_ERROR, detail="500")) + book.tell(After(35))
    assert found[-1] == away(0, 503)
    assert found[-1].why == f"the engine e failed on this request {TRIES} times, at last: server error: 500"  # type: ignore[union-attr]
    assert len(sends(found)) == TRIES - 1


def test_a_restart_with_fewer_slots_sends_less() -> None:
    book = play(engine(slots=4)) >> [ask(n) for n in range(6)] << sent(0) << sent(1) << sent(2) << sent(3) >> record(slots=2)
    assert book >> [done(0), done(1)] >> done(2) << sent(4) >> done(3) << sent(5)


def test_reload_gives_an_engine_other_slots() -> None:
    book = play(engine(slots=1)) >> [ask(0), ask(1)] << sent(0)
    assert book.traffic.reload(settings_of(*upstreams(engine(slots=2))), book.now) == [sent(1)]


def test_a_record_of_an_unknown_engine_changes_nothing() -> None:
    assert play() >> record(name="other")


# Interruption ---------------------------------------------------------------------------------------------------------------------


def decoding(*tickets: int, kind: EngineKind = EngineKind.LLAMACPP) -> Playbook:
    """All slots are taken by batch requests of that numbers, which began in this order."""
    book = play(engine("e", kind, len(tickets)))
    for ticket in tickets:
        book = book >> ask(ticket, BATCH, f"b{ticket}") << sent(ticket, withhold=kind is EngineKind.LLAMACPP)
        book = book >> Began(ticket, Usage(1000, 1)) >> After(1)
    return book


def test_an_interactive_request_interrupts_the_batch_request_that_began_last() -> None:
    book = decoding(1, 2, 3) >> ask(9, INTERACTIVE) << Interrupt(3)
    assert view(book).dimensions[0].reserved == 3, "the slot is free when the engine has been left, and not before"
    assert book >> Ended(3, End.INTERRUPTED, Usage(1000, 30)) << sent(9)


def test_an_interrupted_request_comes_back_to_its_old_place_and_is_charged() -> None:
    book = decoding(1) >> ask(2, BATCH, "b1") >> ask(3, BATCH, "other") >> ask(9, INTERACTIVE) << Interrupt(1)
    book = book >> Ended(1, End.INTERRUPTED, Usage(1000, 30), 0.0, 1030) << sent(9)
    assert book.traffic.crew.budgets["b1"].tokens.spent == 1030
    assert book >> done(9) << sent(1, attempt=2, withhold=True)


@pytest.mark.parametrize("before", [[], [Responded(1, NOTHING_OBSERVED)]], ids=["sent", "its headers came"])
def test_a_request_in_its_prompt_is_never_interrupted(before: list[Event]) -> None:
    book = play(engine(slots=1)) >> ask(1, BATCH) << sent(1, withhold=True) >> before >> ask(9, INTERACTIVE) >> After(50)
    assert book
    assert book >> Began(1, None) << Interrupt(1), "it is, once it decodes"


def test_a_request_whose_client_saw_output_is_never_interrupted() -> None:
    assert decoding(1) >> Shown(1) >> ask(9, INTERACTIVE) >> After(50)


@pytest.mark.parametrize("task_class", [INTERACTIVE, NORMAL])
def test_only_batch_requests_are_interrupted(task_class: TaskClass) -> None:
    book = play(engine(slots=1)) >> ask(1, task_class, "a") << sent(1) >> Began(1, TOOK) >> ask(9, INTERACTIVE, "b") >> After(50)
    assert book


@pytest.mark.parametrize("task_class", [NORMAL, BATCH])
def test_only_interactive_requests_interrupt(task_class: TaskClass) -> None:
    assert decoding(1) >> ask(9, task_class, "a") >> After(50)


@pytest.mark.parametrize("kind", [EngineKind.VLLM, EngineKind.SGLANG])
def test_engines_with_an_order_of_their_own_are_not_cut(kind: EngineKind) -> None:
    assert decoding(1, kind=kind) >> ask(9, INTERACTIVE) >> After(50)


def test_a_request_is_interrupted_a_few_times_at_most() -> None:
    book = decoding(1)
    for n in range(INTERRUPTS):
        book = book >> ask(10 + n, INTERACTIVE) << Interrupt(1) >> Ended(1, End.INTERRUPTED, TOOK) << sent(10 + n) >> done(10 + n)
        book = book << sent(1, attempt=n + 2, withhold=n + 1 < INTERRUPTS) >> Began(1, TOOK)
    assert book >> ask(20, INTERACTIVE) >> After(50), "it may end now"


def test_each_waiting_interactive_request_gets_a_slot_of_its_own() -> None:
    book = decoding(1, 2, 3) >> ask(8, INTERACTIVE, "i") << Interrupt(3) >> ask(9, INTERACTIVE, "j")
    assert book >> Ended(3, End.INTERRUPTED, TOOK) << sent(8) << Interrupt(2) >> Ended(2, End.INTERRUPTED, TOOK) << sent(9)


def test_one_is_interrupted_for_one() -> None:
    book = decoding(1, 2, 3) >> ask(9, INTERACTIVE) << Interrupt(3)
    assert book >> [Responded(1, NOTHING_OBSERVED), Responded(2, NOTHING_OBSERVED)]


def test_who_ends_while_it_is_interrupted_has_ended() -> None:
    assert decoding(1) >> ask(9, INTERACTIVE) << Interrupt(1) >> done(1) << sent(9) >> Ended(1, End.INTERRUPTED, TOOK)


def test_who_would_be_told_to_come_back_is_not_interrupted() -> None:
    book = play(engine(slots=1), patient_hold_s=100.0, hold_s=100.0) >> ask(1, BATCH) << sent(1, withhold=True) >> Began(1, None)
    assert book >> After(41) >> ask(9, INTERACTIVE)


def test_nobody_is_interrupted_while_a_slot_is_free_or_the_engine_is_away() -> None:
    book = play() >> ask(1, BATCH) << sent(1, withhold=True) >> Began(1, None) >> ask(9, INTERACTIVE) << sent(9)
    assert book
    assert decoding(1) >> record(STARTING) >> ask(9, INTERACTIVE)


# Whatever happens -----------------------------------------------------------------------------------------------------------------


class Engines:
    """Two engines that serve what they get, driven by a list of choices; checks after each event."""

    def __init__(self) -> None:
        self.slots = {"e": 2, "f": 1}
        self.states = {"e": STOPPED, "f": STOPPED}
        self.now = 0.0
        made = [engine(name, EngineKind.LLAMACPP, slots) for name, slots in self.slots.items()]
        self.traffic = Traffic(settings_of(*upstreams(*made), hold_s=300.0, patient_hold_s=900.0), self.now)
        self.sent: dict[int, Send] = {}
        self.live: set[int] = set()
        self.shown: set[int] = set()
        self.began: set[int] = set()
        self.cut: list[int] = []
        self.cuts: Counter[int] = Counter()
        self.ended: dict[int, str] = {}

    def tell(self, event: Event) -> None:
        before = Counter(one.upstream[0] for one in self.sent.values())
        for command in self.traffic.handle(event, self.now):
            if isinstance(command, Send):
                name = command.upstream[0]
                before[name] += 1
                assert self.states[name] is READY, "sent to an engine that is not ready"
                assert before[name] <= self.slots[name], "more in flight than slots"
                assert command.ticket in self.live and command.ticket not in self.sent
                self.sent[command.ticket] = command
            elif isinstance(command, Interrupt):
                ticket = self.traffic.tickets[command.ticket]
                assert ticket.event.agent.task_class is BATCH and command.ticket in self.began - self.shown
                self.cuts[command.ticket] += 1
                assert self.cuts[command.ticket] <= INTERRUPTS
                self.cut.append(command.ticket)
            elif isinstance(command, TurnAway):
                assert command.ticket in self.live
                self._over(command.ticket, str(command.status))
        assert {n for n, one in self.traffic.tickets.items() if one.where == SENT} == self.sent.keys()
        self.check_no_idle_slot()

    def check_no_idle_slot(self) -> None:
        """Nobody waits (but for a pause after a failure) for an engine that has a free slot."""
        for pool in self.traffic.network.pools():
            name = pool.key.account
            if self.states[name] is READY and pool.in_flight < self.slots[name]:
                for ticket in self.traffic.tickets.values():
                    assert ticket.where != 0 or all(door.pool is not pool for door in ticket.route.doors), "it waits beside a free slot"

    def leave(self, ticket: int, event: Event, *, over: str = "") -> None:
        del self.sent[ticket]
        self.began.discard(ticket)
        self.shown.discard(ticket)
        if ticket in self.cut:
            self.cut.remove(ticket)
        if over:
            self._over(ticket, over)
        self.tell(event)

    def _over(self, ticket: int, why: str) -> None:
        self.live.discard(ticket)
        self.ended[ticket] = why
        self.sent.pop(ticket, None)


ACTS = ["ask"] * 6 + ["began", "began", "shown", "cut", "done", "done", "refused", "gone", "record", "wait"]
CHOICES = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 10_000)), max_size=120)


def act(world: Engines, what: str, number: int, ticket: int) -> None:
    sent = sorted(world.sent)
    chosen = sent[number % len(sent)] if sent else -1
    match what:
        case "ask":
            task_class, name = (INTERACTIVE, NORMAL, BATCH, BATCH)[number % 4], "ef"[number // 4 % 2]
            names = ("e.openai", "f.openai") if number % 5 == 0 else (f"{name}.{(Api.OPENAI, Api.ANTHROPIC)[number // 8 % 2]}",)
            world.live.add(ticket)
            api = Api.OPENAI if len(names) > 1 else Api(names[0][2:])
            world.tell(Arrived(ticket, Agent(f"{task_class}{number % 3}", 1, task_class), LaneKey(api, "m"), "m", names, 360))
        case "began" if sent and chosen not in world.began:
            world.began.add(chosen)
            world.tell(Began(chosen, (None, Usage(100, 1))[number % 2]))
        case "shown" if sent and chosen not in world.cut:
            world.shown.add(chosen)
            world.tell(Shown(chosen))
        case "cut" if world.cut:
            victim = world.cut[0]
            world.leave(victim, Ended(victim, End.INTERRUPTED, Usage(100, 7)))
        case "done" if sent:
            world.leave(chosen, Ended(chosen, (End.SERVED, End.CUT, End.REJECTED)[number % 3], TOOK), over="done")
        case "refused" if sent:
            world.leave(chosen, Refused(chosen, (Refusal.UNREACHABLE, Refusal.RATE_LIMITED, Refusal.SERVER_ERROR)[number % 3]))
        case "gone" if world.live - set(sent):
            one = min(world.live - set(sent))
            world.live.discard(one)
            world.tell(Withdrawn(one))
        case "record":
            name, state = "ef"[number % 2], (READY, READY, READY, STARTING, FAILED, STOPPED)[number // 2 % 6]
            world.states[name], world.slots[name] = state, 1 + number // 12 % 3
            world.tell(EngineChanged(name, EngineRecord(name, state, slots=world.slots[name])))
        case "wait":
            world.now += number % 40
            world.tell(Tick())


@how(max_examples=examples(300), deadline=None)
@given(CHOICES)
def test_never_more_in_flight_than_slots_and_no_free_slot_beside_a_waiting_request(choices: list[tuple[str, int]]) -> None:
    world = Engines()
    for ticket, (what, number) in enumerate(choices):
        act(world, what, number, ticket)
    for name in world.states:  # then all goes well, and everybody ends
        world.states[name] = READY
        world.tell(EngineChanged(name, EngineRecord(name, READY, slots=world.slots[name])))
    for _ in range(2000):
        if not world.live:
            break
        for ticket in sorted(world.sent):
            if ticket in world.cut:
                world.leave(ticket, Ended(ticket, End.INTERRUPTED, TOOK))
            elif ticket in world.sent:
                world.leave(ticket, Ended(ticket, End.SERVED, TOOK), over="done")
        wake = world.traffic.wakes_at(world.now)
        if not world.sent and wake is not None:
            world.now = max(world.now, wake)
            world.tell(Tick())
    assert not world.live, "somebody waits for ever"
