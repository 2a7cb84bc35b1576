"""The page as text: nothing in it is believed, nothing in it is fetched."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from supervisor.kernel.errors import one_line
from supervisor.views import document, figures
from supervisor.views.report import pages
from tests.views.report.kit import HOSTILE, NAMES, analysis, group, hostile, perspective, ready, report, sample, summary, task, young

HARMLESS = tuple(f"name{n}" for n in range(len(HOSTILE)))


class Page(HTMLParser):
    """Tags with their attributes, and the text between them; what only follows from slashes and backticks in a text is left out."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.raw: dict[str, str] = {}
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag not in ("wbr", "code"):
            self.tags.append((tag, found))
        self._inside = f"{tag} {found.get('type', '')}".strip() if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002 - the parser's signature
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.raw[self._inside] = self.raw.get(self._inside, "") + data
        else:
            self.text += data


def outline(page: Page) -> list[tuple[str, tuple[str, ...], str | None]]:
    return [(tag, tuple(found), found.get("class")) for tag, found in page.tags]


@pytest.mark.parametrize("make", [hostile, ready])
def test_no_text_changes_the_page(make: Any) -> None:
    attacked, plain = Page(pages.render_html(make(HOSTILE))), Page(pages.render_html(make(HARMLESS)))
    assert outline(attacked) == outline(plain)
    for text in HOSTILE:
        seen = one_line(text).replace("`", "")
        assert seen in attacked.text.replace("`", ""), text


@pytest.mark.parametrize("name", NAMES)
def test_the_page_runs_and_fetches_only_what_it_brought(name: str) -> None:
    page = Page(pages.render_html(sample(name)))
    policy = next(found["content"] for tag, found in page.tags if tag == "meta" and found.get("http-equiv"))
    digests = [base64.b64encode(hashlib.sha256(page.raw[one].encode()).digest()).decode() for one in ("script", "style")]
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{digests[0]}'; style-src 'sha256-{digests[1]}'; base-uri 'none'; form-action 'none'"
    )
    for tag, found in page.tags:
        assert not [key for key in found if key.startswith("on") or key in ("style", "src", "srcset", "action")], tag
        assert (found.get("href") or "#").startswith("#")
    assert not re.search(r"url\(|@import", page.raw["style"])


@pytest.mark.parametrize("name", NAMES)
def test_every_link_has_its_target(name: str) -> None:
    tags = Page(pages.render_html(sample(name))).tags
    ids = [found["id"] for _, found in tags if "id" in found]
    assert len(ids) == len(set(ids))
    assert {(found["href"] or "")[1:] for tag, found in tags if tag == "a"} <= set(ids)


def test_a_run_without_anything() -> None:
    text = Page(pages.render_html(report())).text
    assert "Nothing ran." in text
    assert "No task belongs to this run." in text


def test_what_nobody_looked_at_is_said() -> None:
    page = Page(pages.render_html(report(exclude=list(HOSTILE))))
    assert "nobody looked at " in page.text and all(one_line(text) in page.text for text in HOSTILE)
    assert outline(page) == outline(Page(pages.render_html(report(exclude=list(HARMLESS)))))
    assert ", nobody looked at `vendor/*`" in pages.render_markdown(report(exclude=["vendor/*"]))
    assert "nobody looked at" not in pages.render_html(report(exclude=[]))


def test_an_empty_repository() -> None:
    made = analysis(
        summary=summary([perspective("tests", score=None, reason="no Python files")], files=0, actions=["There are no Python files here."])
    )
    text = Page(pages.render_html(made)).text
    assert "no score" in text
    assert "There is no Python file at this commit." in text


def test_an_analysis_that_nobody_has_answered_yet_shows_its_crew_alone() -> None:
    page = Page(pages.render_html(young()))
    assert [found["id"] for tag, found in page.tags if tag == "section"] == ["crew"]
    assert "nothing is known yet" in page.text and "No analyst ran" not in page.text and "Analysis of shop" in page.text
    assert "No analyst ran" not in pages.render_markdown(young()) and "## Health" not in pages.render_markdown(young())


def test_an_analysis_that_runs_shows_what_is_known() -> None:
    page = Page(pages.render_html(young(known=True)))
    assert [found["id"] for tag, found in page.tags if tag == "section"] == ["health", "perspectives", "crew", "method"]
    assert "from 1 of 5 perspectives" in page.text and "No analyst ran" not in page.text and "failed" not in page.text
    assert "## Health: 50.0 of 100, from 1 of 5 perspectives" in pages.render_markdown(young(known=True))


def test_what_to_do_stands_before_what_was_found() -> None:
    made = analysis(findings=2)
    made["summary"]["actions"] = ["Split it."]
    text = pages.render_html(made)
    assert text.index('id="actions"') < text.index('id="fix"') and made["summary"]["issues"][0]["message"] in text
    text = pages.render_markdown(made)
    assert text.index("## Next") < text.index("## What to fix first")


def test_columns_without_news_are_left_out() -> None:
    def heads(**changes: Any) -> str:
        return pages.render_html(report(summary=summary([perspective("tests"), perspective("security", **changes)])))

    assert "Unparsable" not in heads() and ">Parts" not in heads()
    assert "Unparsable" in heads(unparsable=1) and ">Parts" in heads(shards=3)


def test_what_models_took_is_told_a_task_and_in_sum() -> None:
    lint, cart = {"tokens": 61_000, "cost_usd": 0.25, "wait_s": 12.0}, {"tokens": 500, "cost_usd": None, "wait_s": 0.0}
    made = report(tasks=[task("lint", spent=lint), task("cart", spent=cart), task("docs", spent=None)], spent=figures.total([lint, cart]))
    for text in (Page(pages.render_html(made)).text, pages.render_markdown(made).replace("`", "")):
        assert "Models: 62k tokens, cost not known, waited 12s." in text
        assert "61k tokens, $0.25, waited 12s" in text and "500 tokens, cost not known" in text
    assert "Models" not in Page(pages.render_html(report(tasks=[task("lint")]))).text, "a report of before, or without any"
    assert "Models" not in pages.render_markdown(report(tasks=[task("lint", spent=None)], spent=None))


def test_a_group_has_its_ranking_its_reasons_and_what_to_type() -> None:
    made = report(choices=[group(("one", "two"), decided=True)])
    page, said = Page(pages.render_html(made)), pages.render_markdown(made)
    assert "passed, weaker188$0.9256m52s" in re.sub(r"\n *", "", page.text)
    assert "| `1*` | one | done | passed, weaker | 1 | 88 | `$0.925` | 6m52s |" in said
    assert "| 2 | two | failed | - | - | - | - | - |" in said
    for text in ("1 one: one", "2 two: one", "one two", "nightcrew choose"):
        assert text in page.text and text in said
    assert "choices" not in pages.render_html(report()) and "best of" not in pages.render_markdown(report())


def test_what_was_not_chosen_is_not_to_be_taken() -> None:
    tasks = [task(f"api-{number}", commits=2, chosen=number == 1 or None) for number in (1, 2)] + [task("api-3", commits=2, chosen=False)]
    said = pages.render_markdown(report(tasks=tasks))
    assert "take 1121-k3f9/api-1" in said and "take 1121-k3f9/api-2" in said and "take 1121-k3f9/api-3" not in said


def test_a_long_last_line_is_cut() -> None:
    made = report(tasks=[task("lint", last_line="<b>" + "x" * 500)])
    for text in (Page(pages.render_html(made)).text, pages.render_markdown(made)):
        assert "x" * 196 + "…" in text and "x" * 197 not in text


def test_without_a_baseline_the_crew_says_how_long_it_took() -> None:
    made = sample("large")
    assert 'id="parallel"' in pages.render_html(made)
    made["figures"]["sequential_s"] = None
    page = pages.render_html(made)
    assert "parallel" not in re.findall(r'(?:id="|href="#)(\w+)', page) and page.count('class="lead"') == 1


def test_an_analysis_in_which_all_failed() -> None:
    names = ("security", "complexity", "docstrings", "tests", "structure")
    lost = [{"task": f"1121-k3f9/{name}", "perspective": name, "shard": "1/1", "reason": "killed by signal 9"} for name in names]
    made = report(
        summary=summary([perspective(name, "failed", None) for name in names], failed=lost), tasks=[task(name, "failed") for name in names]
    )
    made["run"]["state"] = "failed"
    text = Page(pages.render_html(made)).text
    assert "Failed. None of 5 perspectives gave a result" in text
    assert text.count("killed by signal 9") == 5


def test_thirty_tasks_and_five_thousand_findings() -> None:
    page = pages.render_html(analysis(findings=5_000, tasks=30))
    assert page.count('<tr><td><span class="high">') == 5_000
    assert len(page.encode()) < 2_000_000


def test_the_size_of_an_ordinary_analysis() -> None:
    assert len(pages.render_html(analysis(findings=500, tasks=10)).encode()) < 300_000


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_colour_of_text_can_be_read_by_day_and_by_night() -> None:
    _, style = document.script_and_style()
    both = re.findall(r"--([a-z]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", style)
    for theme in ({name: light for name, light, _ in both}, {name: dark for name, _, dark in both}):
        for name in ("ink", "muted", "accent", "high", "medium", "low", "good"):
            for ground in ("paper", "raised"):
                bright, dim = sorted((luminance(theme[name]), luminance(theme[ground])), reverse=True)
                assert (bright + 0.05) / (dim + 0.05) >= 4.5, (name, ground)  # WCAG 2.2, level AA
