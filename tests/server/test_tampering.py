"""What an agent without a sandbox changes that is ours or the person's: seen when it ends, in `status`, the journal and the audit log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from supervisor.store import journal, sqlite
from tests.support import House, git, wait_until

CONFIG = "echo '[x]' >> \"$(git rev-parse --git-common-dir)/config\""


def audited(house: House) -> list[str]:
    """What `audit show` says of tampering."""
    entries = json.loads(house.ok("audit", "show", "--json", "-n", "1000"))["entries"]
    return [entry["reason"] for entry in entries if entry["kind"] == "trouble"]


def journalled(house: House, name: str) -> list[str]:
    db = sqlite.connect_readonly(house.home.ledger)
    try:
        return [entry["data"]["why"] for entry in journal.journal_of_task(db, house.task(name).id) if entry["event"] == "tampering"]
    finally:
        db.close()


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("git update-ref -d {ref}", "moved or removed while it ran, by it or by somebody else: {ref}"),
        ("git update-ref {ref} $(git commit-tree -m x HEAD^{{tree}})", "moved or removed while it ran, by it or by somebody else: {ref}"),
        (CONFIG, "changed while it ran, by it or by somebody else: .git/config"),
        ('rm "$NIGHTCREW_OUT/../guard.json"; echo {{ > "$NIGHTCREW_OUT/../guard.json"', "guard.json was changed while it ran"),
    ],
    ids=["ref removed", "ref moved", "configuration", "records"],
)
def test_what_it_changed_of_ours_is_said(house: House, harm: str, said: str) -> None:
    house.start_daemon()
    house.ok("add", "-f", "--id", "before", "echo work > work")
    ref = f"refs/nightcrew/rescue/{house.task('before').id}/1"
    assert git(house.repo, "rev-parse", "--verify", ref)
    house.ok("add", "-f", "--id", "harms", "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a;"
             + harm.format(ref=ref))  # fmt: skip
    house.ok("add", "-f", "--id", "after", "echo more > more")
    expected = said.format(ref=ref)
    assert f"tampering: {expected}" in house.ok("status", "harms")
    assert [expected in why for why in audited(house)] == [True] and [expected in why for why in journalled(house, "harms")] == [True]
    assert "tampering" not in house.ok("status", "before") + house.ok("status", "after"), "said once, of who ran then"


def test_the_administration_of_anothers_worktree(house: House, tmp_path: Path) -> None:
    """It is refused as soon as git would use it."""
    house.start_daemon()
    go = tmp_path / "go"
    house.ok("add", "--id", "works", f"while [ ! -e {go} ]; do sleep 0.05; done; echo work > work")
    wait_until(lambda: house.task("works").attempt_state == "running", "it to run")
    house.ok("add", "-f", "--id", "harms", 'echo /elsewhere > "$(git rev-parse --git-common-dir)/worktrees/works.1/commondir"')
    go.touch()
    house.wait_final()
    assert "a file that only git and nightcrew write was changed" in house.ok("status", "works")
    assert ["only git and nightcrew write was changed" in why for why in audited(house)] == [True]


def test_what_we_move_and_what_moves_while_nobody_runs_is_no_tampering(house: House) -> None:
    house.start_daemon()
    for name in ("one", "two"):
        house.ok("add", "-f", "--id", name, f"echo {name} > {name}")
    house.ok("clean", "--discard", "--yes", "one")
    house.ok("add", "-f", "--id", "three", "true")
    house.ok("down")
    git(house.repo, "update-ref", "-d", f"refs/nightcrew/rescue/{house.task('two').id}/1")
    house.start_daemon()
    house.ok("add", "-f", "--id", "four", "true")
    house.ok("retry", "four")
    house.ok("wait", "four")
    assert audited(house) == [] and "tampering" not in house.ok("status", "--all")
