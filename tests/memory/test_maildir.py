"""A mailbox on the disk: of several processes that claim one message one has it; nothing is reached through a link."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from memory import maildir
from memory.maildir import Box, Maildir
from supervisor.kernel.errors import HostError

MESSAGES, READERS = 200, 4


def _claims(root: Path, out: Path) -> None:
    box = Maildir(root, "run/task")
    out.write_text("\n".join(name for name in map(str, range(MESSAGES)) if box.claim(name)))


def test_of_processes_that_claim_the_same_message_exactly_one_has_it(tmp_path: Path) -> None:
    root = tmp_path / "mail"
    root.mkdir()
    box = Maildir(root, "run/task")
    for name in map(str, range(MESSAGES)):
        box.draft(name, b"x")
        assert box.deliver(name)
    context, outs = multiprocessing.get_context("fork"), [tmp_path / f"out{number}" for number in range(READERS)]
    readers = [context.Process(target=_claims, args=(root, out)) for out in outs]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
        assert reader.exitcode == 0
    claimed = [name for out in outs for name in out.read_text().split()]
    assert sorted(claimed, key=int) == list(map(str, range(MESSAGES)))
    assert {box.where(name) for name in claimed} == {Box.CUR}


def test_each_step_can_be_repeated(tmp_path: Path) -> None:
    box = Maildir(tmp_path, "person")
    assert box.where("a") is None and box.text("a") is None and box.drafts() == [] and not box.deliver("a")
    box.draft("a", b"one")
    box.draft("a", b"two")
    assert (box.drafts(), box.where("a"), box.text("a")) == (["a"], Box.TMP, "two")
    assert [box.deliver("a"), box.deliver("a"), box.claim("a"), box.claim("a")] == [True, False, True, False]
    assert [box.give_back("a"), box.give_back("a"), box.where("a")] == [True, False, Box.NEW]
    assert maildir.owners(tmp_path) == ["person"] and box.strangers(frozenset({"a"})) == []
    before = maildir.changed(tmp_path, "person")
    (tmp_path / "person/new/b.md").write_text("x")
    assert maildir.changed(tmp_path, "person") != before and [one.data for one in box.strangers(frozenset({"a"}))] == [b"x"]
    box.forget("nothing")


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
            box.draft("a", b"x")
    assert not [file for file in outside.rglob("*") if file.is_file()]
    assert maildir.owners(root) in ([], ["run/task"])


def test_which_files_below_the_mailboxes_have_arrived() -> None:
    arrived = ["person/new/a.md", "1123-k3f9/lint/new/a.md", "1123-k3f9/lint/new/note.txt"]
    others = ["new/a.md", "person/cur/a.md", "person/tmp/a.md", "1123-k3f9/lint/new/.a.md", "1123-k3f9/lint/new/x/a.md", "a.md"]
    assert [path for path in arrived + others if maildir.is_arrival(path)] == arrived
