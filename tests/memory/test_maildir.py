"""A mailbox on the disk: each step can be repeated, and nothing is reached through a link."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.service import mail
from memory.service.mail import Maildir
from supervisor.kernel.errors import HostError


def test_each_step_can_be_repeated(tmp_path: Path) -> None:
    box = Maildir(tmp_path, "person")
    assert box.text("a") is None
    box.file("a")
    box.put("a", "one")
    box.put("a", "two")
    assert box.text("a") == (tmp_path / "person/new/a.md").read_text() == "two" and (tmp_path / "person/tmp").is_dir()
    box.file("a")
    box.file("a")
    assert (tmp_path / "person/cur/a.md").read_text() == "two" and not list((tmp_path / "person/new").iterdir())
    assert mail.owners(tmp_path) == ["person"] and box.strangers(frozenset()) == []
    before = mail.changed(tmp_path, "person")
    (tmp_path / "person/new/b.md").write_text("x")
    assert mail.changed(tmp_path, "person") != before and [one.data for one in box.strangers(frozenset({"a"}))] == [b"x"]


@pytest.mark.parametrize("part", ["run", "run/task", "run/task/new"])
def test_a_link_anywhere_on_the_way_is_not_followed(tmp_path: Path, part: str) -> None:
    root, outside = tmp_path / "mail", tmp_path / "outside"
    (outside / "task/new").mkdir(parents=True)
    (outside / "new").mkdir()
    (root / part).parent.mkdir(parents=True)
    (root / part).symlink_to(outside)
    box = Maildir(root, "run/task")
    (root / "run/task").parent.is_dir()
    with pytest.raises(HostError, match="cannot use the mailbox"):
        box.strangers(frozenset())
    if part != "run/task/new":
        with pytest.raises(HostError):
            box.put("a", "x")
    assert not [file for file in outside.rglob("*") if file.is_file()]
    assert mail.owners(root) in ([], ["run/task"])
