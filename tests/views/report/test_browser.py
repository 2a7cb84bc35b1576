"""The page in a real Chromium: charts are drawn, nothing is fetched, nothing hostile runs, and it fits a phone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright import sync_api as playwright

from supervisor.views.report import pages
from tests.views.browsing import DESK, NEEDS_CHROMIUM, PHONE, Opened
from tests.views.report.kit import HOSTILE, NAMES, analysis, hostile, perspective, ready, sample, summary

pytestmark = NEEDS_CHROMIUM

Open = Callable[..., Opened]


@pytest.fixture
def show(open_page: Callable[..., Opened]) -> Open:
    def opened(report: dict[str, Any], size: tuple[int, int] = DESK, **options: Any) -> Opened:
        return open_page(pages.render_html(report), size, **options)

    return opened


def fills(opened: Opened, kind: str) -> set[str]:
    """The colours in which a kind of span is drawn, as the browser computed them."""
    return set(opened.page.locator(f".lanes rect.{kind}").evaluate_all("all => all.map(one => getComputedStyle(one).fill)"))


def colour(opened: Opened, name: str) -> str:
    """A colour of the style sheet as the browser spells it."""
    found: str = opened.page.evaluate(
        f"""() => {{
            const probe = document.body.appendChild(document.createElement("span"));
            probe.style.color = "var(--{name})";
            const found = getComputedStyle(probe).color;
            probe.remove();
            return found;
        }}"""
    )
    return found


@pytest.mark.in_turns
@pytest.mark.parametrize("name", NAMES)
def test_the_samples_on_a_desk_and_on_a_phone(show: Open, name: str) -> None:
    for size in (DESK, PHONE):
        opened = show(sample(name), size)
        opened.open_all()
        opened.check_fits()
        assert opened.page.locator("figure").count() == {"large": 4, "failed": 3, "ordinary": 1}[name]
        assert fills(opened, "work") == {colour(opened, "accent")}
        opened.check_quiet()


def test_by_night_the_charts_are_dark_too(show: Open) -> None:
    opened = show(sample("large"), scheme="dark")
    night = colour(opened, "accent")
    assert fills(opened, "work") == {night}
    opened.page.emulate_media(color_scheme="light")
    assert colour(opened, "accent") != night and fills(opened, "work") == {colour(opened, "accent")}
    opened.check_quiet()


@pytest.mark.parametrize("make", [hostile, ready])
def test_hostile_names_run_nothing_and_fit(show: Open, make: Any) -> None:
    for size in (DESK, PHONE):
        opened = show(make(), size)
        opened.open_all()
        opened.check_fits()
        opened.check_quiet()
        assert opened.page.locator("img, iframe, object, embed, form[action], main script").count() == 0


def test_long_tables_can_be_searched(show: Open) -> None:
    opened = show(analysis(findings=30))
    opened.open_all()
    rows = opened.page.locator("#findings tbody tr:visible")
    assert rows.count() == 30
    opened.page.fill(".search input", "MODULE_2 injection")
    assert rows.count() == 11
    assert opened.page.locator(".search output").inner_text() == "11 of 30 shown"
    opened.page.fill(".search input", "low injection module_2")
    assert rows.count() == 0
    opened.page.fill(".search input", "security high injection module_2")
    assert rows.count() == 11
    opened.page.press(".search input", "Enter")
    opened.check_quiet()


def test_a_place_can_be_copied(show: Open) -> None:
    opened = show(analysis(findings=2), permissions=["clipboard-read", "clipboard-write"])
    button = opened.page.locator("#fix button.copy-it").first
    button.click()
    playwright.expect(button).to_have_text("Copied")
    assert "copied" in (button.get_attribute("class") or "")
    assert opened.page.evaluate("navigator.clipboard.readText()") == "package/sub/module_0.py:0".removesuffix(":0")


def test_severities_differ_by_more_than_their_colour(show: Open) -> None:
    opened = show(analysis(summary=summary([perspective("tests")], hot_spots=[{"file": "a.py", "high": 1, "medium": 1, "low": 1}])))
    tops = [opened.page.locator(f"#hot .lanes rect.{name}").bounding_box()["y"] for name in ("high", "medium", "low")]
    assert tops[0] < tops[1] < tops[2]


def test_a_bar_tells_what_it_is(show: Open) -> None:
    opened = show(hostile(HOSTILE[:1]))
    assert opened.page.locator("#hot .lanes rect.high title").first.text_content().startswith("<script>alert(1)</script>.py: ")
    opened.check_quiet()


def test_without_scripts_the_tables_say_it_all(show: Open) -> None:
    opened = show(sample("failed"), java_script_enabled=False)
    assert opened.page.locator(".search:visible, button:visible").count() == 0
    assert opened.page.locator("#perspectives tbody tr:visible").count() == 5
    assert opened.page.locator("#findings tbody tr:visible").count() == 3
    assert opened.page.locator("#crew tbody tr:visible").count() == 8
