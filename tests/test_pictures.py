"""The pictures of the documents: they show what there is, they are small, and they name no machine."""

from __future__ import annotations

import importlib.util
import re
import socket
import struct
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from supervisor.views.crew import Group, Page
from supervisor.views.status import cut
from supervisor.views.top.lists import Footing

ROOT = Path(__file__).resolve().parent.parent
SVG = "{http://www.w3.org/2000/svg}"
STRANGERS = re.compile(r"(?<!\w)/(?:tmp|root|work|Users|home/(?!dev\b))|\w@\w")
"""Paths of machines, and users of them."""


def tool(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module of tools/."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, made)
    spec.loader.exec_module(made)
    return made


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)  # noqa: S314 - of this repository


def words(drawing: ElementTree.Element) -> str:
    return "\n".join(one.text or "" for one in drawing.iter(f"{SVG}text"))


@pytest.mark.parametrize("name", ["top.svg", "recording.svg"])
def test_what_is_drawn_is_the_screen_as_it_is_now(name: str) -> None:
    """It fails when a group, a page or the line of keys has another name: then `make pictures`."""
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    said = words(parsed(text))
    assert len(text.encode()) < 300_000
    assert not (found := STRANGERS.findall(said)), found
    shown = said.split("\n")
    for group in (Group.NEEDS_ME, Group.WORKING, Group.QUEUED, Group.ENDED):
        assert group.upper() in shown, f"{group}: make pictures"
    tabs = [re.sub(r"^\d ", "", word) for line in shown for word in re.split(r"(?= \d )", line) if re.match(r" ?\d [a-z]", word)]
    assert " ".join(tabs).count(Page.SCREEN) and all(str(page) in said for page in Page)
    keys = re.split(r"  +", cut(Footing.KEYS, 110))
    assert all(key in said for key in keys), "make pictures"


def test_the_recording_says_when_each_thing_is_there_and_stands_still_for_who_asks_for_that() -> None:
    text = (ROOT / "docs/recording.svg").read_text(encoding="utf-8")
    assert "animation-duration:40s" in text and "prefers-reduced-motion:reduce" in text and "<script" not in text
    assert set(re.findall(r'class="(k\d+)"', text)) == set(re.findall(r"@keyframes (k\d+)", text))
    still = set(re.findall(r"\.(k\d+)\{visibility:visible", text))
    drawing = parsed(text)
    left = "\n".join(words(group) for group in drawing.findall(f"{SVG}g") if group.get("class") in still)
    assert "migrate" in words(drawing) and "Do you want to create made.txt?" in left


def test_the_page_is_a_small_picture() -> None:
    data = (ROOT / "docs/web.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", data[16:24]) == (1280, 760) and len(data) < 300_000


def test_frames_become_what_comes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = tool("picture", monkeypatch)
    frames = [
        (at, [picture.segments(line) for line in lines])
        for at, lines in ((0.0, ["always", "first"]), (1.0, ["always", "\x1b[7mnext <b>\x1b[0m"]), (3.0, ["always", "first"]))
    ]
    made = picture.animated("a <test>", frames, 4.0, 20, still=1)
    drawing = parsed(made)
    assert words(drawing) == "always\nfirst\nnext <b>" and made == picture.animated("a <test>", frames, 4.0, 20, still=1)
    assert "0%{visibility:visible}25%{visibility:hidden}75%{visibility:visible}" in made
    assert "0%{visibility:hidden}25%{visibility:visible}75%{visibility:hidden}" in made
    assert [group.get("class") for group in drawing.findall(f"{SVG}g")] == ["k1", "k2"]
    assert ".k1{visibility:hidden" in made and ".k2{visibility:visible" in made and "<rect" in made.partition('class="k2"')[2]


def test_a_frame_that_names_this_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    picture, pictures = (tool(name, monkeypatch) for name in ("picture", "pictures"))
    monkeypatch.setattr(socket, "gethostname", lambda: "vm")
    pictures.refuse_names([(0.0, [picture.segments(text)]) for text in ("prices.py", "1126-3vm9/login")])
    for text in (f"in {ROOT}/x", "me@vm:~"):
        with pytest.raises(SystemExit, match="names"):
            pictures.refuse_names([(0.0, [picture.segments(text)])])


@pytest.mark.soak
def test_the_script_records_a_real_crew(monkeypatch: pytest.MonkeyPatch) -> None:
    picture, pictures = (tool(name, monkeypatch) for name in ("picture", "pictures"))
    with pictures.stage() as on:
        pictures.begin(on)
        frames = pictures.record(on, 8.0, ())
    drawing = parsed(picture.animated("short", frames, 8.0, pictures.COLUMNS, 0))
    assert "WORKING" in words(drawing) and "tests" in words(drawing)
