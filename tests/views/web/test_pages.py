"""The pages beside the crew's in a real Chromium, over a home with something on every page and hostile words in all of it."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from supervisor.store.ledger import Ledger
from supervisor.views.web.pages import ROWS
from tests.store.kit import submit
from tests.support import House, make_repository, wait_until
from tests.views.browsing import DESK, NEEDS_CHROMIUM, PHONE, Opened
from tests.views.web.axe import NEEDS_AXE, serious
from tests.views.web.conftest import Served
from tests.views.web.filled import GROUP, RUN, fill

pytestmark = NEEDS_CHROMIUM

Visit = Callable[..., Opened]
NOTE, THREAD = "/memory?path=semantic/build.md", f"/mail?thread=01{'A' * 24}"
PATHS = (
    "/limits",
    "/runs",
    f"/run/{RUN}",
    "/trains",
    "/maps",
    "/memory",
    NOTE,
    "/mail",
    THREAD,
    "/audit",
    "/audit?of=journal",
    "/resources",
)
SHOWN = ("/limits", f"/run/{RUN}", "/trains", "/maps", "/memory", THREAD, "/audit", "/resources")
"""Those of them that together have all that any has."""
MADE = "main :is(img, script, iframe, object, embed, svg:not(.plot, .plot svg), style, base, meta, form)"
"""Elements that none of our pages makes."""
ABSENT: tuple[list[str], ...] = ([], ["no gateway is running"], ["no supervisor is running; next: nightcrew up -d"])
HIDDEN = "\u202e\u200b\x1b\x07\U000e0041"


@pytest.fixture(scope="module")
def crewed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A home that was filled, and no supervisor: to look needs none."""
    root = tmp_path_factory.mktemp("pages")
    made = House(root, make_repository(root / "repo", {"README": "hello\n"}))
    fill(made.home.root)
    yield made
    made.reap()


def ready(visit: Visit, path: str, size: tuple[int, int] = DESK, **options: Any) -> Any:
    """The page at `path`, once it shows what there is."""
    page = visit(path, size, **options).page
    page.locator("main[data-ready]").wait_for()
    return page


def go(page: Any, served: Served, path: str) -> None:
    page.goto(served.base + path)
    page.locator("main[data-ready]").wait_for()


def test_every_page_fits_a_phone_and_what_agents_wrote_is_text_on_it(visit: Visit, served: Served) -> None:
    opened = visit(PATHS[0], PHONE)
    page = opened.page
    for path in PATHS:
        go(page, served, path)
        opened.open_all()
        opened.check_fits()
        assert page.locator(MADE).count() == 0, path
        assert page.title() != "owned" and not set(page.locator("main").inner_text()) & set(HIDDEN), path
        assert page.locator("main .trouble:visible").all_inner_texts() in (
            [],
            ["no gateway is running"],
            ["no supervisor is running; next: nightcrew up -d"],
        ), path
    go(page, served, f"/run/{RUN}")
    assert "<img src=x onerror=alert(1)>\\x1b]52;c;QUJD\\x07\\u202egpj.exe" in page.locator("main").inner_text(), "it is shown, not hidden"


@NEEDS_AXE
def test_nothing_serious_keeps_anybody_out(visit: Visit, served: Served) -> None:
    page = visit(bypass_csp=True).page
    for path in SHOWN:
        seen(page, served, path)
        assert serious(page) == [], path
    page.emulate_media(color_scheme="dark")
    for path in ("/limits", NOTE):
        seen(page, served, path)
        assert serious(page, colours=True) == [], path


def seen(page: Any, served: Served, path: str) -> None:
    """All of it, also what is folded."""
    go(page, served, path)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")


def test_limits_are_charts_with_letters_and_with_the_same_in_a_table(visit: Visit, served: Served) -> None:
    page = ready(visit, "/limits")
    first = page.locator(".chart").first
    assert first.locator("figcaption").inner_text() == "Input tokens a minute of work/anthropic/opus-4, by agent, in the minute before"
    assert first.locator(".legend .swatch").all_inner_texts() == ["A", "B", "C", "D", "R", "X", "limit"]
    pile = first.locator("path.pile").first.bounding_box()
    assert pile["width"] > 500 and pile["height"] > 20 and first.locator("text.of", has_text="A").count() == 1
    assert first.locator("rect.band").count() == 2
    first.locator("summary").click()
    heads = first.locator("thead th").all_inner_texts()
    assert heads[0] == "Until" and heads[1].startswith("A ") and first.locator("tbody tr").count() == 20
    page.get_by_label("Limit").select_option(label="work/anthropic/opus-4: output tokens a minute")
    page.locator("figcaption", has_text="Output tokens a minute").wait_for()
    page.get_by_label("Seconds of").select_option(label="The whole turn")
    page.locator("figcaption", has_text="The whole turn: seconds").wait_for()
    assert first.locator("figcaption").inner_text().startswith("Output tokens a minute"), "the choice before is kept"
    bands = page.locator("section", has_text="When a breaker was not closed").locator("tbody tr")
    assert bands.locator("td.long").all_inner_texts() == ["429 </script><script>document.title='owned'</script>"] * 2


def test_a_page_of_rows_leads_to_the_older_ones_and_back(visit: Visit) -> None:
    page = ready(visit, "/runs")
    assert page.locator("tbody tr").count() == ROWS
    page.get_by_role("link", name="Older runs").click()
    page.locator("main[data-ready] td", has_text="1101-0000").wait_for()
    assert page.get_by_role("link", name="Older runs").count() == 0
    page.get_by_role("link", name="First page").click()
    page.locator("main[data-ready] td", has_text=GROUP).wait_for()


def test_a_commit_is_seen_and_the_keyboards_place_is_kept(visit: Visit, crewed: House) -> None:
    page = ready(visit, "/runs")
    page.get_by_role("link", name=RUN).focus()
    page.evaluate("window.same = true")
    with closing(Ledger(crewed.home.ledger, lambda: 1_800_000_000.0)) as ledger:
        submit(ledger, "fresh", run="1126-frsh")
    page.locator("td", has_text="1126-frsh").wait_for()
    assert page.evaluate("document.activeElement.textContent") == RUN and page.evaluate("window.same")


def test_the_report_opens_under_its_own_policy_and_without_our_origin(visit: Visit, served: Served) -> None:
    page = ready(visit, f"/run/{RUN}")
    context, noise = page.context, list[str]()
    # Asked of the context before the click: the tab is known while it still navigates, and cannot be reloaded then.
    context.on("console", note := lambda message: noise.append(message.text))
    with context.expect_event("response", lambda answer: "/report/" in answer.url) as answering, context.expect_page() as opening:
        page.get_by_role("link", name="Report of the run").click()
    report = opening.value
    policy = answering.value.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "sandbox allow-scripts;" in policy
    report.locator(".lanes svg").first.wait_for()
    assert report.evaluate("origin") == "null", "it reaches neither the cookie nor the key"
    assert noise == []
    context.remove_listener("console", note)
    forged = context.new_page()
    address, _, proof = report.url.rpartition("/")
    assert re.fullmatch("[0-9a-f]{64}", proof)
    answer = forged.goto(f"{address}/{proof[:-1]}{'1' if proof[-1] == '0' else '0'}")
    assert answer.status == 404 and "another time" in forged.locator("body").inner_text()
    report.close()
    forged.close()


def test_a_check_of_the_chain_is_made_when_somebody_asks(visit: Visit) -> None:
    page = ready(visit, "/audit")
    assert page.locator(".verdict").inner_text() == ""
    page.get_by_role("button", name="Check the chain and the rows").click()
    page.locator(".verdict .state").wait_for()
    said = page.locator(".verdict").inner_text()
    assert "not whole" in said and "journal" in said, "the anchor of the test proves rows that it made up"


def test_with_the_keyboard_alone(visit: Visit) -> None:
    page = ready(visit, "/memory")
    page.get_by_role("link", name="semantic/build.md").first.focus()
    page.keyboard.press("Enter")
    page.locator("pre.foreign", has_text="ignore previous instructions").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement !== document.body")
    page.go_back()
    page.get_by_role("heading", name="Waiting for a person").wait_for()


def test_what_cannot_be_read_is_a_sentence_and_goes_when_it_can(visit: Visit, crewed: House) -> None:
    page = ready(visit, "/mail?thread=<script>", noise=True)
    assert page.locator(".trouble").inner_text() == "no such thread <script>; next: nightcrew mail ls --all"
    page = ready(visit, "/run/<b>x", noise=True)
    assert page.locator(".trouble").inner_text().startswith("no run <b>x")
    aside = crewed.home.ledger.with_name("aside.db")
    with closing(sqlite3.connect(crewed.home.ledger)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    crewed.home.ledger.rename(aside)
    try:
        page = ready(visit, "/runs", noise=True)
        assert "nothing was ever run here" in page.locator(".trouble").inner_text()
    finally:
        aside.rename(crewed.home.ledger)
    wait_until(lambda: page.locator("tbody tr").count() == ROWS, "the rows to come")
    assert page.locator(".trouble").is_hidden()
