"""The three forms: what stands first, that no text changes a page or drives a terminal, and how large 300 tasks are."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from supervisor.features.night import morning_json as night_report
from supervisor.features.night import morning_report as morning_pages
from supervisor.features.night.morning_rows import Diff, Found
from supervisor.kernel.errors import one_line
from supervisor.views import document
from tests.views.night.kit import BEGAN, HOUR, RUN, books, random_night, sample, with_texts
from tests.views.report.kit import HOSTILE
from tests.views.report.test_html import HARMLESS, Page, outline


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return sample(tmp_path_factory.mktemp("night") / "home")


SECTIONS = ["needs", "unwell", "choices", "ready", "elsewhere", "cost", "time", "again", "machine", "unstarted", "against", "trouble"]


def test_the_order_of_the_page(made: dict[str, Any]) -> None:
    page = Page(morning_pages.render_html(made))
    assert [found["id"] for tag, found in page.tags if tag == "section"] == SECTIONS
    targets = {(found["href"] or "")[1:] for tag, found in page.tags if tag == "a"}
    assert targets < {*SECTIONS}
    first = page.text.index("The run goes on: 2 of 5 tasks are done")
    assert first < page.text.index("Needs you") < page.text.index("Ready to take")


def test_the_order_of_the_markdown(made: dict[str, Any]) -> None:
    titles = re.findall(r"^## (.*)$", morning_pages.render_markdown(made), re.MULTILINE)
    assert titles == [
        "Needs you",
        "Did not end well",
        "The best of several",
        "Ready to take",
        "Commits elsewhere",
        "Cost and tokens",
        "Where the time went",
        "Retries and outages",
        "Moments",
        "Not started",
        "Compared",
        "Could not be read",
    ]


class Cells(HTMLParser):
    """The rows of every table."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._open = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 - the parser's signature
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")
            self._open = True

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag not in ("tr", "th", "td")

    def handle_data(self, data: str) -> None:
        if self._open:
            self.rows[-1][-1] += data


@pytest.mark.parametrize("first", ["Task", "Model"])
def test_both_pages_have_the_same_tables(made: dict[str, Any], first: str) -> None:
    plain = [[cell.strip() for cell in row] for row in Cells(morning_pages.render_html(made)).rows]
    marked = [
        [cell.strip(" `\\").replace("\\", "") for cell in line.split("|")[1:-1]] for line in morning_pages.render_markdown(made).split("\n")
    ]
    marked = [row for row in marked if not set("".join(row)) <= set("-:")]
    other = ["Model" if first == "Task" else "Task"]
    for rows in (plain, marked):
        begin = next(index for index, row in enumerate(rows) if row[:1] == [first] and "Cost" in row)
        end = next(
            (index for index in range(begin, len(rows)) if rows[index][:1] == other or len(rows[index]) != len(rows[begin])), len(rows)
        )
        del rows[end:], rows[:begin]
    assert len(plain) > 2 and plain == marked


def test_no_text_changes_the_page(made: dict[str, Any]) -> None:
    attacked, plain = (
        Page(morning_pages.render_html(with_texts(made, HOSTILE))),
        Page(morning_pages.render_html(with_texts(made, HARMLESS))),
    )
    assert outline(attacked) == outline(plain)
    for text in HOSTILE:
        assert one_line(text).replace("`", "") in attacked.text.replace("`", ""), text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e\u2028]", attacked.text)


def test_no_text_changes_the_markdown(made: dict[str, Any]) -> None:
    text = morning_pages.render_markdown(with_texts(made, HOSTILE))
    plain = morning_pages.render_markdown(with_texts(made, HARMLESS))
    assert re.sub(r"[^\n|#]", "", text).count("\n") == plain.count("\n")
    assert [line[:2] for line in text.split("\n")] == [line[:2] for line in plain.split("\n")]
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e\u2028\ud800-\udfff]", text)
    outside = re.sub(r"`[^`\n]*`|<code>[^<]*</code>", "", text)
    assert not re.search(r"<(?!/?details|/?summary)|\]\(|@|\*\*bold|www\.", outside)


def test_json_is_ascii_and_says_the_same(made: dict[str, Any]) -> None:
    attacked = with_texts(made, HOSTILE)
    text = document.as_json(attacked)
    assert text.isascii()
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f]", text)
    assert json.loads(text) == attacked


def test_the_page_runs_and_fetches_only_what_it_brought(made: dict[str, Any]) -> None:
    text = morning_pages.render_html(made)
    page = Page(text)
    policy = next(found["content"] or "" for tag, found in page.tags if tag == "meta" and found.get("http-equiv"))
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    for tag, found in page.tags:
        assert not [key for key in found if key.startswith("on") or key in ("style", "src", "srcset", "action")], tag
        assert (found.get("href") or "#").startswith("#")
    assert not re.search(r"url\(|@import", page.raw["style"])


def test_three_hundred_tasks_stay_below_two_megabytes(tmp_path: Path) -> None:
    home = random_night(tmp_path / "home", 300, seed=5)
    found = night_report.of(night_report.read(home, RUN, BEGAN + 9 * HOUR), Found(on="main"))
    assert max(len(form(found)) for form in morning_pages.FORMATS.values()) < 2_000_000


def test_the_files_are_written_whole_and_for_their_owner(made: dict[str, Any], tmp_path: Path) -> None:
    page = morning_pages.write(made, tmp_path / "out")
    assert page == tmp_path / "out" / "night.html"
    assert {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "out").iterdir()} == dict.fromkeys(
        ("night.html", "night.md", "night.json"), 0o600
    )


def verdict(tmp_path: Path, *states: str, began: bool = True, asks: int = 0) -> str:
    with books(tmp_path / f"home{len(list(tmp_path.iterdir()))}") as made:
        made.run()
        for number, state in enumerate(states):
            task = made.task(f"t{number}", state, "exit code 7" if state == "failed" else "")
            if began and state not in ("waiting", "expired"):
                open_now = state == "running"
                made.attempt(
                    task, 1, BEGAN, None if open_now else BEGAN + 60, None if open_now else "done" if state == "done" else "failed"
                )
            if number < asks:
                made.note(task, 1, "set aside", BEGAN + 5, question="May I?")
    found = morning_pages.verdict(night_report.read(made.home, RUN, BEGAN + 100))
    return f"{found.kind}: {found.word}: {found.sentence}"


def test_one_sentence_says_whether_it_succeeded(tmp_path: Path) -> None:
    assert verdict(tmp_path, "done") == "good: The run succeeded: its task is done, none left commits to take, and it cost $0.00."
    assert verdict(tmp_path, "done", "done").startswith("good: The run succeeded: all 2 tasks are done")
    assert verdict(tmp_path) == "bad: The run failed: it has no task, so nothing ran."
    assert verdict(tmp_path, "failed", "failed") == "bad: The run failed: none of 2 tasks is done and 2 failed."
    assert verdict(tmp_path, "expired", "expired") == "bad: The run failed: none of 2 tasks was started."
    assert verdict(tmp_path, "done", "failed", "expired") == (
        "bad: The run failed for the most part: 1 of 3 tasks is done, 1 failed and 1 never started."
    )
    assert verdict(tmp_path, "done", "done", "cancelled", asks=3) == (
        "part: The run succeeded in part: 2 of 3 tasks are done and 1 needs you."
    )
    assert verdict(tmp_path, "done", "running", "waiting") == (
        "open: The run goes on: 1 of 3 tasks is done, 1 runs and 1 waits; $0.00 so far."
    )


def test_the_commonest_reason(tmp_path: Path) -> None:
    with books(tmp_path / "home") as made:
        made.run()
        for number, why in enumerate(("exit code 7", "exit code 7", "killed by signal 9")):
            made.attempt(made.task(f"t{number}", "failed", f"failed: {why}"), 1, BEGAN, BEGAN + 9, "failed")
    assert morning_pages.commonest(night_report.read(made.home, RUN, BEGAN + 100)) == "The commonest reason, 2 times: exit code 7"


def test_times_are_local_and_say_their_zone_when_the_clock_was_changed(monkeypatch: pytest.MonkeyPatch, zone: Any) -> None:
    zone("Europe/Berlin")
    run = {"began": "2026-10-24T20:30:00Z", "ended": "2026-10-25T05:30:00Z", "until": None}
    assert morning_pages.zoned({"run": run})
    assert morning_pages.clock("2026-10-25T00:30:00Z", zoned=True) == "02:30 CEST"
    assert morning_pages.clock("2026-10-25T01:30:00Z", zoned=True) == "02:30 CET"
    assert morning_pages.period(run, "") == "2026-10-24 22:30 CEST to 06:30 CET"
    labels = [label for _, label in morning_pages.ticks({"zero": "2026-10-24T22:30:00Z", "length_s": 4 * HOUR}, True)]
    assert labels == ["01:00 CEST", "02:00 CEST", "02:00 CET", "03:00 CET"]


def test_a_very_long_text_is_cut_on_the_pages_alone(tmp_path: Path) -> None:
    with books(tmp_path / "home") as made:
        made.run()
        made.attempt(made.task("asks", "running"), 1, BEGAN, None, None)
        made.note(f"{RUN}/asks", 1, "set aside", BEGAN + 5, question="why " * 100_000)
    found = night_report.of(night_report.read(made.home, RUN, BEGAN + 100))
    assert max(len(morning_pages.render_html(found)), len(morning_pages.render_markdown(found))) < 60_000
    assert found["needs"][0]["question"] == "why " * 100_000
    assert found["needs"][0]["commands"] == [f"nightcrew {verb} {RUN}/asks" for verb in ("attach", "resume")]


def test_what_to_do_depends_on_whether_its_agent_lives(tmp_path: Path) -> None:
    with books(tmp_path / "home") as made:
        made.run()
        for state in ("paused", "cancelled"):
            task = made.task(state, state)
            made.attempt(task, 1, BEGAN, BEGAN + 60, "failed")
            made.note(task, 1, "set aside", BEGAN + 60, question="May I?")
    needs = night_report.of(night_report.read(made.home, RUN, BEGAN + 100))["needs"]
    assert [[command.split()[1] for command in one["commands"]] for one in needs] == [["logs", "resume"], ["logs", "retry"]]


def test_one_that_failed_and_then_had_no_time_left_says_both(tmp_path: Path) -> None:
    with books(tmp_path / "home") as made:
        made.run()
        task = made.task("cart", "expired", "the night ended at 06:30")
        made.attempt(task, 1, BEGAN, BEGAN + 60, "failed", end_cause="gate: exit code 2")
    night = night_report.read(made.home, RUN, BEGAN + 100)
    (one,) = night_report.of(night)["unwell"]
    assert one["reason"] == "the night ended at 06:30; its last attempt: gate: exit code 2"
    assert one["commands"][0] == f"nightcrew logs --stream gate {RUN}/cart"
    assert morning_pages.verdict(night).sentence == "none of 1 task is done and 1 did not finish."
    (attempt,) = night.tasks[0].attempts
    same = replace(night.tasks[0], attempts=(replace(attempt, why="402: the night ended at 06:30"),))
    assert morning_pages.reason(same) == "the night ended at 06:30"


def test_who_asks_at_this_moment_is_told_too(tmp_path: Path) -> None:
    with books(tmp_path / "home") as made:
        made.run()
        for name in ("later", "first"):
            made.attempt(made.task(name, "running"), 1, BEGAN, None, None)
    night = night_report.read(made.home, RUN, BEGAN + 100)
    asks = {
        f"{RUN}/{name}": {"state": "waiting_permission", "detail": f"{name}?", "since": BEGAN + at}
        for name, at in (("later", 50), ("first", 9))
    }
    needs = night_report.of(replace(night, asks=asks), Found(diffs={f"{RUN}/first": Diff("+x\n")}))["needs"]
    assert [(one["question"], one["since"]) for one in needs] == [
        ("first?", "2026-11-22T22:30:09.000Z"),
        ("later?", "2026-11-22T22:30:50.000Z"),
    ]
    assert [[command.split()[1] for command in one["commands"]] for one in needs] == [["diff", "attach"], ["attach"]]
