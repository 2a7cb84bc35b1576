"""The morning report in a real Chromium: on a phone, by day and by night, quiet, and what its buttons copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright import sync_api as playwright

from supervisor.features.night import morning_report as morning_pages
from tests.views.browsing import DESK, NEEDS_CHROMIUM, Opened
from tests.views.night.kit import sample, with_texts
from tests.views.report.kit import HOSTILE

pytestmark = NEEDS_CHROMIUM
PHONE = (390, 844)

Open = Callable[..., Opened]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return sample(tmp_path_factory.mktemp("night") / "home")


@pytest.mark.in_turns
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_a_desk_and_is_quiet(open_page: Open, made: dict[str, Any], scheme: str) -> None:
    for size in (PHONE, DESK):
        opened = open_page(morning_pages.render_html(made), size, scheme=scheme)
        opened.open_all()
        opened.check_fits()
        opened.check_quiet()
        assert opened.page.locator(".lanes svg rect.tokens").count() > 0


def test_every_button_copies_exactly_its_command(open_page: Open, made: dict[str, Any]) -> None:
    opened = open_page(morning_pages.render_html(made), PHONE, permissions=["clipboard-read", "clipboard-write"])
    copied = []
    for button in opened.page.locator("button.copy-it").all():
        button.click()
        playwright.expect(button).to_have_text("Copied")
        copied.append(opened.page.evaluate("navigator.clipboard.readText()"))
    wanted = [command for one in (*made["needs"], *made["unwell"]) for command in one["commands"]]
    choices = [command for one in made["choices"] for command in one["commands"]]
    refs = [command for one in made["elsewhere"] for command in one["commands"]]
    assert copied == [*wanted, *choices, *(one["command"] for one in made["ready"]), *refs]
    opened.check_quiet()


def test_hostile_texts_run_nothing_and_fit(open_page: Open, made: dict[str, Any]) -> None:
    opened = open_page(morning_pages.render_html(with_texts(made, HOSTILE)), PHONE)
    opened.open_all()
    opened.check_fits()
    opened.check_quiet()
    assert opened.page.locator("img, iframe, object, embed, form, main script").count() == 0


def test_a_thumb_can_hit_the_buttons_and_a_lane_is_where_its_time_is(open_page: Open, made: dict[str, Any]) -> None:
    opened = open_page(morning_pages.render_html(made), PHONE)
    assert opened.page.locator("button.copy-it").first.bounding_box()["height"] >= 36
    lanes, length = opened.page.locator("#time .lanes svg[role=img]"), made["lanes"]["length_s"]
    for row, lane in zip(made["lanes"]["rows"], lanes.all(), strict=True):
        whole = lane.bounding_box()
        begin, end, kind = row["spans"][-1]
        drawn = lane.locator(f"rect.{kind}").last.bounding_box()
        assert drawn["x"] - whole["x"] == pytest.approx(whole["width"] * begin / length, abs=1)
        assert drawn["width"] == pytest.approx(whole["width"] * (end - begin) / length, abs=1)


def test_without_scripts_it_says_it_all(open_page: Open, made: dict[str, Any]) -> None:
    opened = open_page(morning_pages.render_html(made), java_script_enabled=False)
    assert opened.page.locator("button:visible").count() == 0
    assert opened.page.locator("#needs .ask:visible").count() == 2
    assert opened.page.locator("#time .lanes svg:visible").count() > 4


def test_on_paper_nothing_is_folded_and_nothing_is_dark(open_page: Open, made: dict[str, Any]) -> None:
    opened = open_page(morning_pages.render_html(made), scheme="dark")
    opened.page.emulate_media(media="print")
    colour = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert colour == "rgb(255, 255, 255)"
    assert opened.page.locator("button:visible, nav:visible").count() == 0
    assert all(one.bounding_box()["height"] > 20 for one in opened.page.locator("details .patch").all())
