"""The page in a real Chromium, before a real crew: what a person sees, presses and gets back after the server died."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

from supervisor.client import protocol
from tests.support import House, git, wait_until
from tests.views.browsing import NEEDS_CHROMIUM, PHONE, Opened
from tests.views.web.axe import NEEDS_AXE, serious
from tests.views.web.conftest import HOSTILE, NAME, Served, entered

pytestmark = NEEDS_CHROMIUM

Visit = Callable[..., Opened]


def row(page: Any, name: str) -> Any:
    return page.locator(".row", has=page.locator(".name", has_text=name))


def group(page: Any, name: str) -> str:
    """The group in which a task stands."""
    found: str = row(page, name).evaluate("node => node.closest('section').querySelector('h2').firstChild.textContent")
    return found


def agent(house: House, name: str) -> str:
    return f"/agent/{house.task(name).id}"


def expect_text(page: Any, selector: str, text: str) -> None:
    """Wait for it; what the page said last stands in the failure."""
    from playwright.sync_api import TimeoutError as Late

    try:
        page.locator(selector, has_text=text).first.wait_for()
    except Late as late:
        raise AssertionError(f"no {selector} with {text!r}; it said {page.locator('#said').inner_text()!r}") from late


def test_the_crew_in_its_groups_and_nothing_hostile_runs(visit: Visit, crewed: House, served: Served) -> None:  # X12
    opened = visit(fresh=True)
    page = opened.page
    row(page, "asks").get_by_role("button", name="Allow").wait_for()
    assert {name: group(page, name) for name in ("asks", "works", "later", "edits", "bad")} == {
        "asks": "needs me", "works": "working", "later": "queued", "edits": "to take", "bad": "ended",
    }  # fmt: skip
    assert page.locator("section h2").first.inner_text().lower().startswith("needs me"), "who needs a person stands first"
    assert page.title() == "(1) nightcrew" and "works" in row(page, "later").locator(".says").inner_text()
    assert page.url == f"{served.base}/", "neither the token nor the key stays in the address"
    assert "<img src=x onerror=alert(1)>" in row(page, "edits").locator(".name").get_attribute("title")
    assert page.locator("img, svg, script:not([src])").count() == 0 and "\u202e" not in page.content()
    assert {url.partition("?")[0].rpartition("/")[0] for url in opened.requests} <= {
        served.base,
        f"{served.base}/static",
        f"{served.base}/data",
    }
    [cookie] = page.context.cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and page.evaluate("document.cookie") == ""


def test_what_happens_is_seen_without_a_reload(visit: Visit, crewed: House) -> None:
    page = visit().page
    row(page, "works").wait_for()
    page.evaluate("window.same = true")
    crewed.ok("add", "--id", "fresh", "sleep 600")
    row(page, "fresh").wait_for()
    wait_until(lambda: group(page, "fresh") == "working", "it to work")
    row(page, "fresh").locator("input").check()
    page.keyboard.press("k")
    page.get_by_role("button", name="End", exact=True).wait_for()
    assert crewed.state("fresh") == "running", "it asks before it ends anything"
    page.keyboard.press("y")
    wait_until(lambda: group(page, "fresh") == "ended", "it to end on the page")
    assert crewed.state("fresh") == "cancelled" and page.evaluate("window.same")


def test_a_task_is_started_on_the_page_and_only_where_the_crew_worked_before(visit: Visit, crewed: House) -> None:
    page = visit(noise=True).page  # a browser says of each refusal that there was one
    row(page, "works").wait_for()
    page.keyboard.press("n")
    page.get_by_label("What to do").fill("Describe <b>mod.py</b>.\nBe brief.")
    assert page.get_by_label("Repository", exact=True).locator("option").all_inner_texts() == [str(crewed.repo)]
    page.get_by_label("Agent", exact=True).select_option("builtin")
    page.get_by_label("Name", exact=True).fill("describes")
    page.get_by_role("button", name="Start", exact=True).click()
    expect_text(page, "#said", "added")
    row(page, "describes").wait_for()
    assert crewed.task("describes").title == "Describe <b>mod.py</b>.", "the first line of its prompt"
    assert row(page, "describes").locator(".title").inner_text() == "Describe <b>mod.py</b>."
    key = page.evaluate("localStorage.getItem('nightcrew-key')")
    asked = {"prompt": "x", "kind": "builtin", "name": "x", "base": "", "repo": str(crewed.repo)}
    wrong: tuple[dict[str, object], ...] = ({"repo": "/"}, {"kind": "shell"}, {"prompt": " "}, {"prompt": 1})
    answers = [page.evaluate(ASK, ["start", {**asked, **one}, key])[1] for one in wrong]
    wanted = ("nothing was ever run in", "no such kind of agent here", "there is no prompt", "not a text")
    assert all(words in said for words, said in zip(wanted, answers, strict=True)), answers


def test_before_a_merge_it_says_into_which_branch_and_how_much(visit: Visit, crewed: House) -> None:
    page = visit().page
    row(page, "edits").get_by_role("button", name="Take").click()
    expect_text(page, "dialog", f"into main of {crewed.repo}? 1 commit, 3 files +2 -1")
    page.keyboard.press("n")
    assert git(crewed.repo, "rev-list", "--count", "HEAD") == "1"


def test_with_the_keyboard_alone(visit: Visit, crewed: House) -> None:
    page = visit().page
    row(page, "reads").wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
    page.keyboard.press("/")
    page.keyboard.type("reads")
    wait_until(lambda: page.locator(".row").count() == 1, "the filter")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.textContent") == "reads"
    page.keyboard.press("s")
    page.get_by_label("To reads").wait_for()
    page.keyboard.type("hello <b>you</b>")
    page.keyboard.press("Enter")
    expect_text(page, "#said", "sent to")
    assert page.evaluate("document.activeElement.textContent") == "reads", "what was asked gives the keys back"
    wait_until(lambda: "heard hello <b>you</b>" in crewed.ok("logs", "reads") or _screen(crewed, "reads", "heard"), "the agent to hear it")
    page.keyboard.press("Escape")
    wait_until(lambda: page.locator(".row").count() > 3, "all of them again")
    page.keyboard.press("p")
    expect_text(page, "#said", "paused")
    wait_until(lambda: group(page, "reads") == "queued", "it to be paused")
    page.keyboard.press("p")
    expect_text(page, "#said", "resumed")
    page.keyboard.press("w")
    assert page.evaluate("document.activeElement.textContent") == "asks"
    page.keyboard.press("a")
    expect_text(page, "#said", "allowed")
    wait_until(lambda: _screen(crewed, "asks", "got 31"), "its dialog to have the key")
    wait_until(lambda: group(page, "asks") == "working" and page.title() == "nightcrew", "the page to know")
    page.keyboard.press("?")
    page.get_by_role("dialog").get_by_text("the next one who needs me").wait_for()


def _screen(house: House, name: str, text: str) -> bool:
    import os

    from agents import tmux
    from supervisor.kernel.names import attempt_name

    view = house.task(name)
    shown = tmux.look(house.home.tmux_socket, str(view.pane_id), attempt_name(view.id, view.epoch), os.environ)
    return any(text in line for line in shown.lines)


def test_the_live_screen_of_an_agent(visit: Visit, crewed: House) -> None:
    page = visit(agent(crewed, "works")).page
    expect_text(page, ".screen div", "step ")
    red = page.locator('.screen span[style*="--k1)"]', has_text="red")
    if red.count():  # while it has not scrolled away
        assert page.locator(".screen").inner_text().count("<script>alert(2)</script>") == 1
    before = page.locator(".screen div", has_text="step ").last.inner_text()
    wait_until(lambda: page.locator(".screen div", has_text="step ").last.inner_text() != before, "the screen to go on")
    page.keyboard.press("4")
    expect_text(page, '.log span[style*="--k1)"]', "red")
    assert page.locator(".log span", has_text="own").first.evaluate("node => node.style.color") == "rgb(1, 2, 3)"
    assert "<script>alert(2)</script>" in page.locator(".log div").first.inner_text()
    page.keyboard.press("5")
    expect_text(page, ".history div", "attempt 1 starts")
    page.keyboard.press("6")
    expect_text(page, ".resources div", "works")
    page.keyboard.press("Escape")
    row(page, "works").wait_for()
    assert page.title() != "owned"


def test_a_pane_is_looked_at_only_while_somebody_looks(visit: Visit, crewed: House) -> None:
    page = visit(agent(crewed, "works"), noise=True).page
    expect_text(page, ".screen div", "step ")
    key = page.evaluate("localStorage.getItem('nightcrew-key')")
    assert page.evaluate("(key) => fetch('/events?topic=nothing&key=' + key).then(a => a.status)", key) == 404
    page.evaluate(HIDE)
    shown = page.locator(".screen").inner_text()
    wait_until(lambda: page.locator(".now").inner_text() != "", "the head")
    crewed.ok("status")
    assert page.locator(".screen").inner_text() == shown, "nothing comes while the page is hidden"


def test_a_diff_is_read_commented_and_taken(visit: Visit, crewed: House) -> None:
    page = visit(f"{agent(crewed, 'edits')}#diff").page
    expect_text(page, ".stat", NAME)
    assert page.locator(".file .tk", has_text="def").count() and page.locator("tr.plus-line", has_text="max").count() == 1
    assert page.locator(".file h3", has_text="<svg onload").count() == 1
    expect_text(page, ".code td", "<script>alert(3)</script>")
    for text in ("why <i>max</i>?", "touch second"):
        page.get_by_label("Comment line 2").last.focus()
        page.keyboard.press("Enter")
        page.keyboard.type(text)
        page.keyboard.press("Control+Enter")
        expect_text(page, "tr.comment", text)
    page.locator("tr.comment", has_text="why").get_by_role("button", name="Remove").click()
    page.locator("tr.comment", has_text="why").wait_for(state="detached")
    review = json.loads(crewed.ok("review", "edits", "--json"))
    assert [(one["path"], one["last"], one["text"]) for one in review["comments"]] == [("mod.py", 2, "touch second")]
    page.get_by_role("button", name="Send 1 comment to the agent").click()
    page.get_by_role("dialog").get_by_role("button", name="Send").click()
    expect_text(page, "#said", "1 comment sent to")
    wait_until(lambda: crewed.state("edits-more") == "done", "the agent to go on")
    assert "second" in git(crewed.repo, "ls-tree", "--name-only", str(crewed.task("edits-more").branch))
    expect_text(page, "tr.comment", "sent: touch second")
    page.keyboard.press("t")
    page.get_by_role("button", name="Merge", exact=True).wait_for()
    assert git(crewed.repo, "log", "--oneline").count("\n") == 0
    page.keyboard.press("y")
    wait_until(lambda: "max" in (crewed.repo / "mod.py").read_text(), "the merge")
    expect_text(page, "#said", "is in main")


PLACES = (("", ".row"), ("works", ".screen div"), ("edits#diff", ".file"))


def placed(house: House, where: str) -> str:
    name, _, page = where.partition("#")
    return f"{agent(house, name)}#{page or 'screen'}" if where else "/"


def test_a_phone_and_the_dark(visit: Visit, crewed: House, served: Served) -> None:
    opened = visit(size=PHONE)
    for where, shown in PLACES:
        opened.page.goto(served.base + placed(crewed, where))
        opened.page.locator(shown).first.wait_for()
        papers = set()
        for scheme in ("light", "dark"):
            opened.page.emulate_media(color_scheme=scheme)
            opened.check_fits()
            papers.add(opened.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert len(papers) == 2, where


@NEEDS_AXE
def test_nothing_serious_for_who_cannot_see_it(visit: Visit, crewed: House, served: Served) -> None:
    page = visit(bypass_csp=True).page
    for where, shown in PLACES:
        page.goto(served.base + placed(crewed, where))
        page.locator(shown).first.wait_for()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            assert serious(page, colours=scheme == "dark") == [], (where, scheme)


HIDE = """() => {
    Object.defineProperty(document, 'hidden', { value: true, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
}"""
ASK = """async ([verb, body, key]) => {
    const headers = { "Content-Type": "application/json", "X-Nightcrew-Key": key };
    const answer = await fetch(`/act/${verb}`, { method: "POST", headers, body: JSON.stringify(body) });
    return [answer.status, (await answer.json()).error];
}"""


def test_the_server_dies_comes_back_and_only_shows(visit: Visit, crewed: House, served: Served) -> None:
    page = visit(noise=True).page
    row(page, "works").wait_for()
    page.evaluate("window.same = true")
    served.end(signal.SIGKILL)
    expect_text(page, "#link", "not connected")
    crewed.ok("add", "--id", "meanwhile", "sleep 600")
    served.start("--read-only")
    expect_text(page, "#link", "live")
    row(page, "meanwhile").wait_for()
    assert page.evaluate("window.same"), "the same page, the same session, the same port"
    key = page.evaluate("localStorage.getItem('nightcrew-key')")
    task = crewed.task("meanwhile").id
    assert page.evaluate(ASK, ["kill", {"tasks": [task]}, key]) == [403, "this server only shows: it was started with --read-only"]
    page.reload()
    row(page, "meanwhile").wait_for()
    expect_text(page, "#link", "read only")
    row(page, "meanwhile").locator("input").check()
    assert page.get_by_role("button", name="Kill").count() == 0
    page.keyboard.press("k")
    page.keyboard.press("y")
    expect_text(page, "#said", "only shows")
    assert crewed.state("meanwhile") == "running"
    assert served.end() == 0, "asked to end, it ends well"
    served.start()


def test_eight_visible_pages_are_live_and_the_first_one_acts(browser: Any, crewed: House, served: Served) -> None:
    """A browser gives a server six connections: all pages share one stream, and the next page takes it over when its holder goes."""
    context = browser.new_context()
    try:
        opened = entered(context, served)
        first = opened.page
        paths = [
            agent(crewed, "works"),
            agent(crewed, "reads"),
            agent(crewed, "asks"),
            "/",
            "/runs",
            "/limits",
            f"{agent(crewed, 'edits')}#diff",
        ]
        pages = [first]
        for path in paths:
            pages.append(context.new_page())
            pages[-1].goto(served.base + path)
        for page in pages:
            assert page.evaluate("document.visibilityState") == "visible"
            expect_text(page, "#link", "live")
        expect_text(pages[1], ".screen div", "step ")
        expect_text(pages[7], ".stat", NAME)
        crewed.ok("add", "--id", "shared", "sleep 600")
        for page in (first, pages[4]):
            row(page, "shared").wait_for()
        row(first, "shared").locator("input").check()
        first.keyboard.press("k")
        first.keyboard.press("y")
        wait_until(lambda: crewed.state("shared") == "cancelled", "an act in the first page")
        first.close()
        crewed.ok("add", "--id", "after", "sleep 600")
        row(pages[4], "after").wait_for()
        expect_text(pages[4], "#link", "live")
        shown = pages[1].locator(".screen").inner_text()
        wait_until(lambda: pages[1].locator(".screen").inner_text() != shown, "the screen to go on")
        crewed.ok("kill", "after")
        assert opened.noise == []
    finally:
        context.close()


def test_the_token_of_a_phone_looks_until_it_is_revoked(browser: Any, crewed: House, served: Served) -> None:
    token = crewed.ok("token", "create", "phone", "--device", "--scope", "read").strip()
    program = crewed.ok("token", "create", "ci", "--all-repos", "--all-tasks").strip()
    context = browser.new_context(viewport={"width": PHONE[0], "height": PHONE[1]})
    try:
        page = context.new_page()
        assert page.goto(f"{served.base}/enter?token={program}").status == 401, "a program's opens no page"
        page.goto(f"{served.base}/enter?token={token}")
        row(page, "works").wait_for()
        key = page.evaluate("localStorage.getItem('nightcrew-key')")
        task = crewed.task("works").id
        assert page.evaluate(ASK, ["kill", {"tasks": [task]}, key]) == [403, "this token may not act"]
        crewed.ok("token", "revoke", "phone")
        wait_until(lambda: page.reload().status == 401, "its session to end")
        assert "nightcrew web" in page.inner_text("main") and crewed.state("works") == "running"
    finally:
        context.close()


def test_without_a_supervisor_it_says_so(visit: Visit, crewed: House, served: Served) -> None:
    page = visit().page
    row(page, "works").wait_for()
    pid = protocol.call(crewed.home.daemon_socket, "ping", {})["pid"]
    crewed.ok("down", "--now")
    expect_text(page, ".troubles", "no supervisor")
    assert group(page, "works") == "working"
    crewed.start_daemon()
    page.locator(".troubles li").wait_for(state="detached")
    assert protocol.call(crewed.home.daemon_socket, "ping", {})["pid"] != pid


def test_a_hostile_title_is_a_title(crewed: House) -> None:
    assert crewed.task("edits").title == HOSTILE
