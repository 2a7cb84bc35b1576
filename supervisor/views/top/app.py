"""The screen: keys become acts, what was read becomes lines. It decides nothing and waits for nobody: threads look and act."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.message import Message
from textual.screen import Screen

from supervisor.kernel.ansi import plain
from supervisor.kernel.errors import one_line
from supervisor.views.crew import Crew, Page, Text
from supervisor.views.top.lists import CrewList, Footing, Heading, PageView, Tabs
from supervisor.views.top.main_screen import Lookers, Main, Verbs, Wanted, key

if TYPE_CHECKING:
    from textual.widgets import Input  # a start has no time for it

    from supervisor.client.crew import Lookout, VerbActs

LINE = "line"
"""The class of the one on which something is typed."""
WIDE, LOW = 100, 20
"""Columns from which the page stands beside the list, and rows from which below it; with less of both only one of them is shown."""


class TopApp(App[None]):
    """One person's look at the crew."""

    CSS = """
    Screen { background: ansi_default; color: ansi_default; layout: vertical; }
    * { scrollbar-color: ansi_bright_black; scrollbar-color-hover: ansi_default; scrollbar-color-active: ansi_default;
        scrollbar-background: ansi_default; scrollbar-background-hover: ansi_default; scrollbar-background-active: ansi_default; }
    CommandPalette > Vertical { margin-top: 1; max-width: 100; background: ansi_default; }
    CommandPalette #--input, CommandPalette #--input.--list-visible { background: ansi_default; border: round ansi_bright_black; }
    CommandPalette SearchIcon { display: none; }
    CommandPalette #--results { background: ansi_default; }
    CommandPalette CommandInput, CommandPalette CommandInput:focus { background: ansi_default; color: ansi_default;
        border: none; height: 1; }
    CommandPalette CommandList, CommandPalette CommandList:focus { background: ansi_default; color: ansi_default;
        border: round ansi_bright_black; max-height: 60vh; }
    CommandPalette CommandList > .option-list--option { color: ansi_default; padding: 0 1; }
    CommandPalette CommandList > .option-list--option-highlighted { background: ansi_default; color: ansi_default; text-style: reverse; }
    ModalScreen { background: transparent; }
    #middle { layout: horizontal; height: 1fr; }
    CrewList { width: 43%; min-width: 40; max-width: 76; }
    #side { width: 1fr; padding-left: 1; border-left: solid ansi_bright_black; }
    PageView { height: 1fr; }
    .stacked #middle { layout: vertical; }
    .stacked CrewList { width: 1fr; max-width: 1000; height: 40%; }
    .stacked #side { height: 1fr; padding-left: 0; border-left: none; border-top: solid ansi_bright_black; }
    .low #side { display: none; }
    .low CrewList { height: 1fr; }
    .alone CrewList { display: none; }
    .alone #side { display: block; height: 1fr; border: none; }
    """
    ENABLE_COMMAND_PALETTE = True
    COMMANDS = {Verbs}  # noqa: RUF012 - of Textual
    BINDINGS: ClassVar[list[BindingType]] = [
        key("q,ctrl+c", "quit"),
        key("w", "next_asking"),
        key("slash", "filter"),
        key("space", "mark"),
        key("escape", "clear"),
        key("question_mark", "help"),
        key("colon,ctrl+p", "command_palette"),
        key("R", "anew"),
        key("z", "alone"),
        *(key(str(number + 1), f"page({number})") for number in range(len(Page))),
        key("left_square_bracket,shift+up", "scroll(-1)"),
        key("right_square_bracket,shift+down", "scroll(1)"),
    ]

    class Looked(Message):
        """The crew was looked at."""

        def __init__(self, crew: Crew) -> None:
            super().__init__()
            self.crew = crew

    class Showed(Message):
        """A page was looked at."""

        def __init__(self, key: str, text: Text) -> None:
            super().__init__()
            self.key, self.text = key, text

    def __init__(self, reading: Lookout, acts: VerbActs) -> None:
        super().__init__(ansi_color=True)
        self.acts = acts
        self._page = Page.SCREEN
        self.lookers = Lookers(
            reading, lambda crew: self.post_message(self.Looked(crew)), lambda key, text: self.post_message(self.Showed(key, text))
        )
        self._line_done: Callable[[str], None] = lambda _: None
        self._alone = False
        self._told: int | None = None
        self.main = Main(id="_default")
        self.list = CrewList()
        self.page = PageView()
        self.heading, self.tabs, self.footing = Heading(), Tabs(), Footing()

    def get_default_screen(self) -> Screen[None]:
        """Of Textual."""
        return self.main

    def compose(self) -> ComposeResult:
        """Of Textual."""
        yield self.heading
        with Container(id="middle"):
            yield self.list
            with Vertical(id="side"):
                yield self.tabs
                yield self.page
        yield self.footing

    async def on_event(self, event: events.Event) -> None:
        """Of Textual. A key acts before the next one is looked at: what a slow connection brings behind `s` is text, and no other acts."""
        if isinstance(event, events.Key) and not event.is_forwarded and self.screen is self.main and self.focused is None:
            await self._check_bindings(event.key)
        else:
            await super().on_event(event)

    def on_mount(self) -> None:
        """Of Textual."""
        self.begin_capture_print(self)
        self.lookers.begin()

    def on_unmount(self) -> None:
        """Of Textual."""
        self.lookers.end()

    def on_resize(self, event: events.Resize) -> None:
        """Of Textual."""
        self._lay_out(event.size.width, event.size.height)

    def _lay_out(self, width: int, height: int) -> None:
        self.screen.set_class(width < WIDE, "stacked")
        self.screen.set_class(width < WIDE and height < LOW, "low")
        self.screen.set_class(self._alone, "alone")

    def on_print(self, event: events.Print) -> None:
        """What verbs say on stderr. Click finds that what stands there on a terminal takes bytes, and writes those."""
        said: str | bytes = event.text
        text = (said.decode(errors="replace") if isinstance(said, bytes) else said).strip()
        if text:
            self.say(text.removeprefix("nightcrew: "))

    def say(self, text: str, *, bad: bool = False) -> None:
        """On the lowest line, as text."""
        self.footing.say(one_line(text), bad=bad)

    # What was seen ----------------------------------------------------------------------------------------------------------------

    def on_top_app_looked(self, event: Looked) -> None:
        """The crew, at most once a second."""
        self._ring(event.crew)
        self.heading.show(event.crew)
        self.list.show(event.crew)
        self._follow()

    def _ring(self, crew: Crew) -> None:
        """The bell of this terminal, when the supervisor has rung since the look before."""
        before, self._told = self._told, crew.told if crew.told is not None else self._told
        if before is not None and crew.told is not None and crew.told > before:
            self.bell()
            self.footing.alert(one_line(plain(crew.told_line)))

    def on_top_app_showed(self, event: Showed) -> None:
        """A page, when it is still the one that is wanted."""
        wanted = self._wanted()
        if wanted is not None and wanted.key == event.key:
            self.page.show(event.key, event.text)

    def _wanted(self) -> Wanted | None:
        row = self.list.row
        return None if row is None else Wanted(row.view, self._page)

    def _follow(self) -> None:
        """Have the page be that of the selected task, and what is new in sight be read."""
        visible = self.list.in_sight()
        if not visible <= self.lookers.visible:
            self.lookers.crew.wake()
        self.lookers.visible = visible
        self.tabs.show(self.list.row, self._page)
        self.lookers.show(self._wanted())
        if self.list.row is None:
            self.page.show("", Text(()))

    def on_crew_list_selected(self, event: CrewList.Selected) -> None:
        """Of the list. What was said of an act stays when the task that it was for goes away."""
        if event.by_person:
            self.footing.clear()
        self._follow()

    def on_crew_list_opened(self) -> None:
        """Of the list."""
        self.main.action_attach()

    def on_tabs_chosen(self, event: Tabs.Chosen) -> None:
        """Of the tabs."""
        self.choose(event.page)

    # Looking ----------------------------------------------------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        """Select another task."""
        self.list.move(by)

    def action_page(self, number: int) -> None:
        """The page of that number, from 0."""
        self.choose(list(Page)[number])

    def action_page_by(self, by: int) -> None:
        """The next one; where only the list is in sight, first the same."""
        pages = list(Page)
        by = by if self._alone or not self.screen.has_class("low") else 0
        self.choose(pages[(pages.index(self._page) + by) % len(pages)])

    def choose(self, page: Page) -> None:
        self._page = page
        if self.screen.has_class("low"):
            self.action_alone(on=True)
        self._follow()

    def action_alone(self, *, on: bool | None = None) -> None:
        """The page on the whole screen, and back."""
        self._alone = not self._alone if on is None else on
        self._lay_out(self.size.width, self.size.height)

    def action_scroll(self, pages: int) -> None:
        """The page, by half of what is in sight."""
        self.page.scroll_by(pages * max(1, self.page.size.height // 2))

    def action_next_asking(self) -> None:
        """The next one who needs me."""
        if not self.list.select_next_asking():
            self.say("nobody needs you")

    def action_mark(self) -> None:
        """Mark the selected task."""
        self.list.toggle()

    def action_clear(self) -> None:
        """Filter, marks, what was said, and the page alone."""
        self.list.marked.clear()
        self.list.filter("")
        self.footing.clear()
        self.action_alone(on=False)

    def action_anew(self) -> None:
        """Look at everything now."""
        self.lookers.show(self._wanted(), anew=True)
        self.lookers.crew.wake()

    def action_command_palette(self) -> None:
        """Every verb."""
        from supervisor.views.top.dialogs import Palette

        if not Palette.is_open(self):  # type: ignore[arg-type]  # its app is of no particular result
            self.push_screen(Palette(id="--command-palette"))

    def action_help(self) -> None:
        """The keys."""
        from supervisor.views.top.dialogs import Help

        self.push_screen(Help())

    # The line below ---------------------------------------------------------------------------------------------------------------

    async def ask_line(self, prompt: str, value: str, done: Callable[[str], None]) -> None:
        """Ask for a line; the next key is for it."""
        from supervisor.views.top.dialogs import Line

        self._line_done = done
        self.screen.query(f".{LINE}").remove()  # a key that was pressed twice asks twice
        line = Line(value, placeholder=one_line(prompt), select_on_focus=False, classes=LINE)
        await self.screen.mount(line)
        self.screen.set_focus(line)

    def action_close_line(self) -> None:
        """Without having asked."""
        self.screen.query(f".{LINE}").remove()
        if not self.list.words or self._line_done == self.list.filter:
            self.list.filter("")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Of the line."""
        if not event.input.has_class(LINE):
            return
        text, done = event.value, self._line_done
        event.input.remove()
        done(text)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Of the line: a filter shows at once what it lets through."""
        if event.input.has_class(LINE) and self._line_done == self.list.filter:
            self.list.filter(event.value)

    async def action_filter(self) -> None:
        """By words."""
        await self.ask_line("filter: words of a name, a kind, a title, a group", self.list.words, self.list.filter)

    async def begin_command(self, verb: str) -> None:
        """Of the palette: a line with the verb and whom it is for."""
        names = " ".join(row.id for row in self.list.chosen()) if verb not in _OF_NOBODY else ""
        await self.ask_line("nightcrew ...", f"{verb} {names}".strip(), self._run_line)

    def _run_line(self, text: str) -> None:
        import shlex

        try:
            words = shlex.split(text)
        except ValueError as error:
            self.say(f"not a command: {error}", bad=True)
            return
        if words:
            self.main.elsewhere(lambda: self.acts.run(words), wait=True)


_OF_NOBODY: Sequence[str] = (
    "run",
    "night",
    "analyze",
    "start",
    "add",
    "map",
    "capacity",
    "gateway",
    "doctor",
    "up",
    "down",
    "stop-all",
    "thaw",
)
"""Verbs that are for no task."""
