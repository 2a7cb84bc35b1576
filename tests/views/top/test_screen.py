"""The screen by Textual's own pilot: what stands where at each size, what each key asks for, and what strangers' text may do."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import click
import pytest
from textual import events
from textual.binding import Binding
from textual.command import CommandList
from textual.pilot import Pilot
from textual.widgets import Input

from supervisor.kernel.errors import Refused
from supervisor.kernel.states import TaskState
from supervisor.views.crew import Page, Seen
from supervisor.views.top.app import TopApp
from supervisor.views.top.main_screen import Main
from tests.views.top.kit import NOW, RUN, Stage, asks, text_of, view, working

pytestmark = pytest.mark.asyncio
SIZES = [(80, 24), (120, 40), (200, 60)]


def seen(*more: Any, count: int = 2) -> Seen:
    views = [*working(count), *more]
    return Seen(views, Counter(one.state for one in views))


async def until(pilot: Pilot[None], condition: Callable[[], object], what: str) -> None:
    """Let the screen work until it is so."""
    for _ in range(500):
        if condition():
            return
        await pilot.pause(0.01)
    raise AssertionError(f"waited in vain for {what}; on the screen:\n{text_of(pilot.app)}")  # type: ignore[arg-type]


@asynccontextmanager
async def shown(stage: Stage, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Pilot[None]]:
    app = stage.app()
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: stage.looks and "looking" not in text_of(app), "the first look")
        yield pilot


async def sees(pilot: Pilot[None], text: str) -> str:
    await until(pilot, lambda: text in text_of(pilot.app), repr(text))  # type: ignore[arg-type]
    return text_of(pilot.app)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("count", [0, 1, 200])
async def test_it_fits_at_every_size_with_none_one_and_many(size: tuple[int, int], count: int) -> None:
    stage = Stage(Seen(working(count), Counter({TaskState.RUNNING: count} if count else {})))
    async with shown(stage, size) as pilot:
        await sees(pilot, "screen of agent-0" if count else "Nothing runs yet")
        screen = await sees(pilot, "last o" if count else "nightcrew start")
        lines = screen.split("\n")
        assert len(lines) == size[1] and max(map(len, lines)) <= size[0]
        assert "enter attach" in lines[-1]
        if count:
            assert f"{count} working" in lines[0] and f"WORKING {count}" in screen
            assert "W works agent-0" in screen
            beside = next(line for line in lines if "WORKING" in line)
            assert ("│" in beside) == (size[0] >= 100), "the page is beside the list where there is room, else below"


async def test_it_rings_when_the_supervisor_does_and_only_then(monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[str] = []
    monkeypatch.setattr(TopApp, "bell", lambda self: rung.append(self.footing.render().plain))
    stage = Stage(seen(), told=7)
    async with shown(stage) as pilot:
        for told, line in ((7, ""), (8, "r/a needs you\x1b[2J"), (8, "r/a needs you"), (None, ""), (8, ""), (0, "")):
            before, stage.told, stage.line = stage.looks, told, line
            pilot.app.action_anew()  # type: ignore[attr-defined]
            await until(pilot, lambda: stage.looks > before, "the look")  # noqa: B023 - it ends here
        await until(pilot, lambda: rung, "the bell")
        assert len(rung) == 1 and "r/a needs you" in text_of(pilot.app) and "\x1b" not in text_of(pilot.app)  # type: ignore[arg-type]


async def test_an_alert_leaves_what_was_said_of_an_act_to_be_read() -> None:
    stage = Stage(seen(), told=7)
    async with shown(stage) as pilot:
        await sees(pilot, "screen of agent-0")
        pilot.app.say("agent-0: was answered")  # type: ignore[attr-defined]
        await sees(pilot, "agent-0: was answered")
        stage.told, stage.line = 8, "agent-1 needs you"
        pilot.app.action_anew()  # type: ignore[attr-defined]
        screen = await sees(pilot, "agent-1 needs you")
        assert screen.split("\n")[-2].strip() == "agent-0: was answered"
        pilot.app.say("agent-1: was answered")  # type: ignore[attr-defined]
        assert "needs you" not in await sees(pilot, "agent-1: was answered")
        await pilot.press("down")
        await until(pilot, lambda: "enter attach" in text_of(pilot.app).split("\n")[-1], "the keys again")  # type: ignore[arg-type]


async def test_what_was_said_of_a_task_that_went_away_stays() -> None:
    stage = Stage(seen(view("stays"), count=1))
    async with shown(stage) as pilot:
        await sees(pilot, "screen of agent-0")
        pilot.app.say("agent-0: was cleaned")  # type: ignore[attr-defined]
        stage.seen = seen(view("stays"), count=0)
        pilot.app.action_anew()  # type: ignore[attr-defined]
        assert "agent-0: was cleaned" in await sees(pilot, "screen of stays")


@pytest.mark.parametrize("size", [(80, 24), (40, 20)], ids=str)
async def test_a_refusal_is_shown_whole(size: tuple[int, int]) -> None:
    stage = Stage(
        seen(), error=Refused("cannot do that", on=f"{RUN}/agent-0", why="w" * 50 + " and more", kept="all of it", hint="nightcrew status")
    )
    async with shown(stage, size) as pilot:
        await pilot.press("p")
        screen = await sees(pilot, "nightcrew status")
        lines = screen.split("\n")
        assert len(lines) == size[1] and "cannot do that" in screen and "and more" in screen and "all of it" in screen
        await pilot.press("down")
        await until(pilot, lambda: "enter attach" in text_of(pilot.app).split("\n")[-1], "the keys again")  # type: ignore[arg-type]


async def test_groups_stand_in_their_order_and_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    views = [
        view("done", TaskState.DONE, ended=NOW - 300), view("taken", TaskState.DONE, ended=NOW - 200), view("asks"), view("asked-first"),
        view("waits", TaskState.READY, reason="ready: waits for a slot"), view("works"), view("broke", TaskState.FAILED, ended=NOW - 100),
    ]  # fmt: skip
    stage = Stage(Seen(views, Counter(one.state for one in views), asks("asks", "asked-first"), to_take={f"{RUN}/done"}))
    async with shown(stage) as pilot:
        screen = await sees(pilot, "may asked-first push?")
        order = ["NEEDS ME 2", "? asks    asked-first", "? asks    asks", "WORKING 1", "W works   works", "QUEUED 1", "q queued  waits",
                 "TO TAKE 1", "T to take done", "ENDED 2", "F failed  broke", "D done    taken"]  # fmt: skip
        places = [screen.index(words) for words in order]
        assert places == sorted(places)
        assert "2 needs me" in screen.split("\n")[0]


async def test_each_key_asks_for_what_its_verb_does() -> None:
    stage = Stage(seen(view("asks")))
    stage.seen = Seen(stage.seen.views, stage.seen.counts, asks("asks"))
    async with shown(stage) as pilot:
        await sees(pilot, "screen of asks")
        for keys, wanted in (
            (("a",), ("answer", f"{RUN}/asks", "may asks push?", True)),
            (("d",), ("answer", f"{RUN}/asks", "may asks push?", False)),
            (("down", "p"), ("hold", f"{RUN}/agent-0", True)),
            (("r",), ("retry", f"{RUN}/agent-0")),
            (("k", "y"), ("kill", f"{RUN}/agent-0")),
            (("t", "y"), ("take", f"{RUN}/agent-0")),
            (("s", *"go on", "enter"), ("send", f"{RUN}/agent-0", "go on")),
            (("up", "space", "space", "r"), ("retry", f"{RUN}/asks", f"{RUN}/agent-0")),
        ):
            await pilot.press(*(key if key != " " else "space" for key in keys))
            await until(pilot, lambda: stage.asked, f"{keys}")
            assert stage.asked == [wanted], keys
            stage.asked.clear()
            await sees(pilot, "done")
        assert "MainThread" not in stage.threads, "no act keeps the screen from painting"


async def test_no_key_does_harm_unasked() -> None:
    stage = Stage(seen())
    async with shown(stage) as pilot:
        await sees(pilot, "screen of agent-0")
        for key in ("k", "t"):
            await pilot.press(key)
            await pilot.press("n")
        await pilot.press("a")
        await sees(pilot, "agent-0 asks nothing")
        await pilot.press("w")
        await sees(pilot, "nobody needs you")
        assert stage.asked == []


async def test_a_screen_longer_than_its_page_changes_in_sight() -> None:
    lines = [f"line {number}" for number in range(60)]
    stage = Stage(seen(), texts={Page.SCREEN: [*lines, "working"]}, ends=True)
    async with shown(stage, (80, 24)) as pilot:
        await sees(pilot, "working")
        stage.texts = {Page.SCREEN: [*lines, "do you want to proceed?"]}
        await sees(pilot, "do you want to proceed?")
        await pilot.press("[")
        await sees(pilot, "line 55")
        stage.texts = {Page.SCREEN: [*lines[:55], "changed above", *lines[56:], "do you want to proceed?"]}
        await sees(pilot, "changed above")


async def test_a_list_longer_than_the_screen_changes_in_sight() -> None:
    views = working(40)
    stage = Stage(Seen(views, Counter({TaskState.RUNNING: 40})))
    async with shown(stage, (80, 24)) as pilot:
        await pilot.press("end")
        await sees(pilot, "screen of agent-39")
        [before] = (line for line in text_of(pilot.app).split("\n") if line.startswith(" W works agent-39 "))  # type: ignore[arg-type]
        stage.seen = Seen([*views[:-1], replace(views[-1], started=NOW - 7200)], Counter({TaskState.RUNNING: 40}))
        await until(pilot, lambda: before not in text_of(pilot.app), "its other time")  # type: ignore[arg-type]


async def test_what_a_verb_says_on_stderr_is_said_on_a_terminal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal Textual passes it on to a stream of text, and Click writes text; on one nobody refuses Click's bytes."""
    async with shown(Stage(seen())) as pilot:
        await sees(pilot, "screen of agent-0")
        monkeypatch.setattr(TopApp, "is_headless", property(lambda _: False))
        try:
            click.echo("nightcrew: run 1122-aaaa: 1 task, größer", err=True)
            await sees(pilot, "run 1122-aaaa: 1 task, größer")
            print("nightcrew: as text", file=sys.stderr)
            await sees(pilot, "as text")
        finally:
            monkeypatch.undo()


async def test_a_refusal_is_said_and_the_screen_goes_on() -> None:
    stage = Stage(seen(), error=Refused("cannot pause", on="x", why="\x1b]0;own\x07 it\nbroke", kept="it", hint="nightcrew status"))
    async with shown(stage) as pilot:
        await sees(pilot, "screen of agent-0")
        await pilot.press("p")
        screen = await sees(pilot, "cannot pause")
        assert "\x1b" not in screen and "\\x1b]0;own" in screen
        await pilot.press("down")
        await sees(pilot, "screen of agent-1")


async def test_agents_come_and_go_and_the_selection_stays_with_its_task() -> None:
    stage = Stage(seen(count=30))
    async with shown(stage, (80, 24)) as pilot:
        for _ in range(3):
            await pilot.press("down")
        await sees(pilot, "screen of agent-3")
        stage.seen = Seen([*working(30)[2:], view("new")], Counter({TaskState.RUNNING: 29}))
        await sees(pilot, "29 working")
        assert pilot.app.list.selected == f"{RUN}/agent-3"  # type: ignore[attr-defined]
        stage.seen = Seen([view("other")], Counter({TaskState.RUNNING: 1}))
        await sees(pilot, "screen of other")
        stage.seen = Seen()
        screen = await sees(pilot, "Nothing runs yet")
        assert "screen of other" not in screen


async def test_nothing_is_lost_on_resize() -> None:
    stage = Stage(seen(count=50), texts={Page.DIFF: [f"line {number}" for number in range(200)]})
    async with shown(stage, (200, 60)) as pilot:
        await pilot.press("2", "slash", *"agent-4", "enter", "down")
        await sees(pilot, "line 3")
        chosen = pilot.app.list.selected  # type: ignore[attr-defined]
        for size in ((80, 24), (45, 15), (20, 6), (120, 40)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
        screen = await sees(pilot, "line 3")
        assert pilot.app.list.selected == chosen and "WORKING" in screen and "agent-5" not in screen  # type: ignore[attr-defined]


async def test_a_phone_has_the_list_and_tab_shows_the_page_alone() -> None:
    stage = Stage(seen())
    async with shown(stage, (45, 15)) as pilot:
        screen = await sees(pilot, "W works agent-0")
        assert "screen of agent-0" not in screen
        await pilot.press("tab")
        screen = await sees(pilot, "screen of agent-0")
        await pilot.press("tab")
        screen = await sees(pilot, "diff of agent-0")
        assert "WORKING" not in screen
        await pilot.press("escape")
        await sees(pilot, "WORKING")


HOSTILE = "\x1b]52;c;b3du\x07\x1b]0;own\x07\x1b[2J\x1b[1;1H\u202eevil\u202c\u200b\U000e0072[bold]x[/bold]\x9b31m\x1b[31mred\x1b[0m"


async def test_text_of_strangers_colours_and_steers_nothing() -> None:  # X09, X12
    hostile = view("agent-0", title=HOSTILE, reason=HOSTILE, kind="claude")
    stage = Stage(
        Seen([hostile], Counter({TaskState.RUNNING: 1}), troubles=[HOSTILE]), texts={Page.SCREEN: [HOSTILE, "\x1b", "\x1b[", "a\rb"]}
    )
    async with shown(stage) as pilot:
        screen = await sees(pilot, "red")
        assert not set("\x1b\x07\x9b\u202e\u200b\U000e0072") & set(screen)
        assert "[bold]x[/bold]" in screen, "no markup of a stranger is read"
        strips = pilot.app.page._strips  # type: ignore[attr-defined]
        assert {str(segment.style.color.name) for segment in strips[0] if segment.style and segment.style.color} == {"color(1)"}
        await pilot.press("k")
        await sees(pilot, "End 1121-k3f9/agent-0")


async def test_a_click_selects_and_a_page_is_chosen_by_the_mouse() -> None:
    stage = Stage(seen())
    async with shown(stage) as pilot:
        await sees(pilot, "screen of agent-0")
        await pilot.click("CrewList", offset=(4, 4))  # its second line
        await sees(pilot, "screen of agent-1")
        await pilot.click("Tabs", offset=(12, 1))
        await sees(pilot, "diff of agent-1")


def chosen_of_palette(pilot: Pilot[None]) -> str:
    """The first word of the line that Enter would take; empty while the palette looks for it."""
    found = pilot.app.screen.query_one(CommandList)
    option = None if found.highlighted is None else found.get_option_at_index(found.highlighted)
    return "" if option is None else str(option.prompt).split()[0]


async def test_the_palette_has_every_verb() -> None:
    stage = Stage(seen())
    async with shown(stage) as pilot:
        await sees(pilot, "screen of agent-0")
        await pilot.press("colon")
        await sees(pilot, "Do the same with many.")
        await pilot.press(*"status")
        await until(pilot, lambda: chosen_of_palette(pilot) == "status", "the verb to be found")
        await pilot.press("enter")
        await sees(pilot, f"status {RUN}/agent-0")


async def test_a_key_pressed_twice_closes_one_dialog() -> None:
    stage = Stage(seen())
    async with shown(stage) as pilot:
        await sees(pilot, "screen of agent-0")
        for key, text in (("k", "y yes"), ("question_mark", "into its pane"), ("colon", "Do the same with many.")):
            await pilot.press(key)
            await sees(pilot, text)
            above = pilot.app.screen
            above.dismiss()
            above.dismiss()
            await until(pilot, lambda: isinstance(pilot.app.screen, Main), "the main screen")


async def test_a_verb_chosen_twice_is_one_line_and_keys_of_one_moment_act_in_their_order() -> None:
    stage = Stage(seen())
    async with shown(stage) as pilot:
        await sees(pilot, "screen of agent-0")
        for _ in range(2):
            await pilot.app.begin_command("status")  # type: ignore[attr-defined]
        await until(pilot, lambda: len(pilot.app.screen.query(Input)) == 1, "one line")
        for key in ("ctrl+u", "x", "y", "backspace", "z"):  # as a slow connection brings them
            pilot.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: pilot.app.screen.query_one(Input).value == "xz", "what was typed")
        await pilot.press("escape")
        await until(pilot, lambda: not pilot.app.screen.query(Input), "no line")
        for key in ("s", "k", "space", "p", "q"):
            pilot.app.post_message(events.Key(key, " " if key == "space" else key))
        await until(pilot, lambda: pilot.app.screen.query(Input) and pilot.app.screen.query_one(Input).value == "k pq", "what was typed")


async def test_help_names_every_key() -> None:
    from supervisor.views.top.dialogs import KEYS

    stage = Stage(seen())
    async with shown(stage, (80, 24)) as pilot:
        await pilot.press("question_mark")
        await sees(pilot, "into its pane")
        bindings = [*pilot.app.BINDINGS, *Main.BINDINGS]
        bound = {key for binding in bindings if isinstance(binding, Binding) for key in binding.key.split(",")}
    named = {word for keys, _ in KEYS for word in keys.split()} | {"escape", "space", "shift+tab", "ctrl+c", *"123456"}
    spelled = {"slash": "/", "question_mark": "?", "colon": ":", "left_square_bracket": "[", "right_square_bracket": "]"}
    in_words = ["?", "end", "home", "pagedown", "pageup", "shift+down", "shift+up"]
    assert sorted({spelled.get(key, key) for key in bound} - named) == in_words


async def test_a_page_whose_end_matters_is_followed_until_a_person_scrolls() -> None:
    stage = Stage(seen(), texts={Page.SCREEN: [f"line {number}." for number in range(50)]}, ends=True)
    async with shown(stage, (80, 24)) as pilot:
        await sees(pilot, "line 49.")
        stage.texts = {Page.SCREEN: [f"line {number}." for number in range(60)]}
        await sees(pilot, "line 59.")
        await pilot.press("left_square_bracket")
        await sees(pilot, "line 50.")
        stage.texts = {Page.SCREEN: [f"line {number}." for number in range(70)]}
        await until(pilot, lambda: len(pilot.app.page._lines) == 70, "the new lines")  # type: ignore[attr-defined]
        await pilot.pause()
        assert "line 69." not in text_of(pilot.app) and "line 50." in text_of(pilot.app)  # type: ignore[arg-type]
        for _ in range(9):
            await pilot.press("right_square_bracket")
        await sees(pilot, "line 69.")
        await pilot.resize_terminal(80, 40)
        stage.texts = {Page.SCREEN: [f"line {number}." for number in range(80)]}
        await sees(pilot, "line 79.")


async def test_a_form_is_filled_in_and_left() -> None:
    stage = Stage(seen())
    async with shown(stage) as pilot:
        await sees(pilot, "screen of agent-0")
        await pilot.press("n", *"more", "enter", "enter", "up", "escape")
        await until(pilot, lambda: "A new task" not in text_of(pilot.app), "the form to go")  # type: ignore[arg-type]
        await pilot.press("slash", *"agent-1", "enter")
        await sees(pilot, "screen of agent-1")
        assert stage.asked == []
