"""One result on top of a commit: what comes of it for whatever two sides can do to files, on real repositories."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from supervisor.core.errors import NotFound
from supervisor.core.landing_terms import Method, Person, Terms
from tests.worktrees import kinds_of_repositories
from worktrees import staging, tree_merge
from worktrees.repository import discover
from worktrees.staging import Contained, Left, Result, Staged

if TYPE_CHECKING:
    from tests.worktrees.conftest import World

TERMS = Terms("t1", Person("Ada Person", "ada@example.com"), 1_700_000_000.7, into="main")
LINES = [f"line {number}\n" for number in range(12)]
Side = Callable[[Path], object]


def text(**changed: str) -> str:
    """Twelve lines, some with other words: `at3="mine"`."""
    return "".join(changed.get(f"at{number}", line.rstrip()) + "\n" for number, line in enumerate(LINES))


def crlf(**changed: str) -> bytes:
    return text(**changed).replace("\n", "\r\n").encode()


def commit_all(world: World, root: Path, words: str = "change") -> str:
    return world.run(root, "sh", "-ec", 'git add -A; git commit -q --allow-empty -m "$0"; git rev-parse HEAD', words)


class Trial:
    """A repository whose `main` and `result` branch from one commit."""

    def __init__(self, world: World, start: Side = lambda _: None) -> None:
        self.world, self.root = world, world.make()
        (self.root / "long.txt").write_text(text())
        (self.root / "src").mkdir()
        for name in ("a.py", "b.py", "c.py"):
            (self.root / "src" / name).write_text(text(at0=name))
        start(self.root)
        self.base = commit_all(world, self.root, "base")
        self.repo = discover(world.git, self.root)

    def sides(self, ours: Side, theirs: Side) -> Trial:
        self.world.sh(self.root, "switch", "-q", "-C", "result", self.base)
        theirs(self.root)
        self.tip = commit_all(self.world, self.root, "their work")
        self.world.sh(self.root, "checkout", "-q", "-B", "main", self.base)
        ours(self.root)
        self.onto = commit_all(self.world, self.root, "our work")
        return self

    def stage(self, method: Method = Method.MERGE, **terms: object) -> Staged | Left | Contained:
        return staging.stage(self.repo, self.onto, Result("r1/task", self.tip, "Title"), replace(TERMS, method=method, **terms))  # type: ignore[arg-type]  # of Terms

    def both(self) -> list[Staged | Left | Contained]:
        """By the two ways in which git is asked."""
        return [self.stage(Method.SQUASH), self.stage(Method.REBASE)]

    def files(self) -> dict[str, str]:
        """Of the staged commit."""
        found = [one for one in self.both() if isinstance(one, Staged)]
        assert len(found) == 2
        assert len({self.world.sh(self.root, "rev-parse", f"{one.commit}^{{tree}}") for one in found}) == 1
        return self.world.blobs(self.repo, found[0].commit)

    def left(self) -> Left:
        found = [one for one in self.both() if isinstance(one, Left)]
        assert len(found) == 2 and found[0].files == found[1].files
        return found[0]


def write(name: str, content: str) -> Side:
    def act(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)

    return act


def move(old: str, new: str, content: str = "") -> Side:
    def act(root: Path) -> None:
        (root / new).parent.mkdir(parents=True, exist_ok=True)
        (root / old).rename(root / new)
        if content:
            (root / new).write_text(content)

    return act


def remove(name: str) -> Side:
    return lambda root: (root / name).unlink()


def chmod(name: str) -> Side:
    return lambda root: (root / name).chmod(0o755)


def link(name: str, to: str) -> Side:
    def act(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(to)

    return act


def both(*sides: Side) -> Side:
    def act(root: Path) -> None:
        for side in sides:
            side(root)

    return act


OTHER = write("ours.txt", "ours\n")


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (write("long.txt", text(at1="ours")), write("long.txt", text(at9="theirs")), {"long.txt": text(at1="ours", at9="theirs")}),
        (move("long.txt", "moved.txt"), write("long.txt", text(at3="theirs")), {"moved.txt": text(at3="theirs"), "long.txt": None}),
        (write("long.txt", text(at3="ours")), move("long.txt", "moved.txt"), {"moved.txt": text(at3="ours"), "long.txt": None}),
        (write("long.txt", text(at1="o")), move("long.txt", "m.txt", text(at9="t")), {"m.txt": text(at1="o", at9="t")}),
        (move("src", "lib"), write("src/a.py", text(at0="a.py", at5="t")), {"lib/a.py": text(at0="a.py", at5="t"), "src/a.py": None}),
        (remove("src/a.py"), both(remove("src/a.py"), write("t.txt", "t\n")), {"src/a.py": None, "t.txt": "t\n"}),
        (OTHER, remove("src/a.py"), {"src/a.py": None, "ours.txt": "ours\n"}),
        (OTHER, both(remove("src/a.py"), write("src/a.py/in.txt", "x\n")), {"src/a.py": None, "src/a.py/in.txt": "x\n"}),
        (write("long.txt", text(at3="ours")), chmod("long.txt"), {"long.txt": text(at3="ours")}),
        (OTHER, link("there", "/etc/passwd"), {"there": "/etc/passwd"}),
        (OTHER, move("long.txt", "Long.txt"), {"Long.txt": text(), "long.txt": None}),
        (write("new.txt", "same\n"), both(write("new.txt", "same\n"), write("t.txt", "t\n")), {"new.txt": "same\n", "t.txt": "t\n"}),
    ],
)  # fmt: skip
def test_what_fits(world: World, ours: Side, theirs: Side, expected: dict[str, str | None]) -> None:
    files = Trial(world).sides(both(ours, write("more.txt", "more\n")), theirs).files()
    assert {name: files.get(name) for name in expected} == {
        name: content if content is None else content.removesuffix("\n") for name, content in expected.items()
    }


def test_a_mode_that_one_side_changed_is_on_the_other_sides_content(world: World) -> None:
    trial = Trial(world).sides(write("long.txt", text(at3="ours")), chmod("long.txt"))
    done = trial.stage()
    assert isinstance(done, Staged)
    assert world.sh(trial.root, "ls-tree", done.commit, "long.txt").startswith("100755")


@pytest.mark.parametrize(
    ("ours", "theirs", "named"),
    [
        (write("long.txt", text(at3="ours")), write("long.txt", text(at3="theirs")), "long.txt"),
        (write("long.txt", text(at3="ours")), remove("long.txt"), "long.txt"),
        (remove("long.txt"), write("long.txt", text(at3="theirs")), "long.txt"),
        (move("long.txt", "one.txt"), move("long.txt", "two.txt"), "one.txt"),
        (write("new.txt", "ours\n"), write("new.txt", "theirs\n"), "new.txt"),
        (write("new", "ours\n"), write("new/in.txt", "theirs\n"), "new"),
        (write("new/in.txt", "ours\n"), write("new", "theirs\n"), "new"),
        (move("src", "lib"), write("src/new.py", "theirs\n"), "lib/new.py"),
        (link("long.txt", "one"), link("long.txt", "two"), "long.txt"),
        (lambda top: (top / "b.bin").write_bytes(b"\0one"), lambda top: (top / "b.bin").write_bytes(b"\0two"), "b.bin"),
        (lambda top: (top / "long.txt").write_bytes(crlf(at3="o")), write("long.txt", text(at9="t")), "long.txt"),
    ],
)  # fmt: skip
def test_what_conflicts_is_named_as_people_know_it(world: World, ours: Side, theirs: Side, named: str) -> None:
    found = Trial(world).sides(ours, theirs).left()
    assert named in found.files
    assert "it conflicts in" in found.why and not any("~" in name for name in found.files)


def test_line_ends_that_git_makes_equal_do_not_conflict(world: World) -> None:
    start = both(write(".gitattributes", "*.txt text=auto eol=crlf\n"), write("crlf.txt", text()))
    files = (
        Trial(world, start)
        .sides(lambda top: (top / "crlf.txt").write_bytes(crlf(at1="ours")), write("crlf.txt", text(at9="theirs")))
        .files()
    )
    assert files["crlf.txt"] == text(at1="ours", at9="theirs").removesuffix("\n")


ODD = [
    "-rf", "--help", ":(glob)**", ":!x", "a\nb", "a\tb", "a b ", '"quoted"', "back\\slash", os.fsdecode(b"\xff\xfe"), "*", "[a]", "~", "é",
    "e\u0301", "a:b", "@{u}", "HEAD", "\u202e",
]  # fmt: skip


def test_a_name_means_that_file_and_no_other(world: World) -> None:
    trial = Trial(world).sides(both(OTHER, write("x", "ours\n")), both(*(write(name, "theirs\n") for name in ODD)))
    found = trial.stage()
    assert isinstance(found, Staged)
    every = set(world.names(trial.repo, found.commit))
    for name in ODD:
        assert set(tree_merge.sides(trial.repo, found.commit, [name])) == {name}
        assert not tree_merge.sides(trial.repo, trial.onto, [name])
        assert set(world.names(trial.repo, tree_merge.replaced(trial.repo, found.commit, {name: None}))) == every - {name}
    trial = trial.sides(both(*(write(name, "ours\n") for name in ODD)), both(*(write(name, "theirs\n") for name in ODD)))
    assert set(trial.left().files) == set(ODD)
    assert trial.left().why.isprintable()


def test_more_names_than_a_command_line_holds(world: World) -> None:
    names = [f"{'x' * 200}/{number}" for number in range(12_000)]
    repo = world.repo()
    assert tree_merge.sides(repo, repo.head, [*names, "f0.txt"]).keys() == {"f0.txt"}


def test_a_directory_takes_the_place_of_a_file_and_back(world: World) -> None:
    trial = Trial(world).sides(both(remove("long.txt"), write("long.txt/in", "ours\n")), OTHER)
    was = tree_merge.sides(trial.repo, trial.base, ["long.txt"])
    assert "long.txt/in" not in world.names(trial.repo, tree_merge.replaced(trial.repo, trial.onto, {"long.txt": was["long.txt"]}))


# Attributes -----------------------------------------------------------------------------------------------------------------------------


def test_the_attributes_of_the_branch_count_and_not_those_that_happen_to_be_checked_out(world: World) -> None:
    lines = both(write(".gitattributes", "*.md merge=union\n"), write("log.md", "one\n"))
    trial = Trial(world, lines).sides(write("log.md", "one\nours\n"), write("log.md", "one\ntheirs\n"))
    expected = trial.both()
    assert set(trial.files()["log.md"].split()) == {"one", "ours", "theirs"}
    (trial.root / ".gitattributes").write_text("*.md -merge\n")
    assert trial.both() == expected, "it was changed there"
    world.sh(trial.root, "checkout", "-qf", "--orphan", "other")
    world.sh(trial.root, "rm", "-rfq", ".")
    assert trial.both() == expected, "something else is checked out"


@pytest.mark.parametrize("where", ["the tree", "the person's own", "for all files"])
def test_a_merge_driver_is_never_run(world: World, where: str) -> None:
    proof = world.tmp / "ran"
    trial = Trial(world, write(".gitattributes", "*.txt merge=evil\n" if where == "the tree" else "\n"))
    trial.sides(write("long.txt", text(at1="ours")), write("long.txt", text(at9="theirs")))
    world.sh(trial.root, "config", "merge.evil.driver", f"touch {proof}")
    if where == "the person's own":
        (trial.root / ".git" / "info" / "attributes").write_text("*.txt merge=evil\n")
    if where == "for all files":
        world.sh(trial.root, "config", "merge.default", "evil")
        assert "long.txt" in trial.files(), "a driver that no file names is none"
    else:
        found = trial.left()
        assert found.files == ("long.txt",) and "merge=evil, which nightcrew does not run" in found.why
    assert not proof.exists()


@pytest.mark.parametrize("value", ["union", "text"])
def test_gits_own_merge_drivers_are_used(world: World, value: str) -> None:
    trial = Trial(world, write(".gitattributes", f"*.txt merge={value}\n"))
    assert (
        trial.sides(write("long.txt", text(at1="ours")), write("long.txt", text(at9="theirs")))
        .files()["long.txt"]
        .startswith("line 0\nours")
    )


def test_a_file_that_is_binary_to_the_repository_conflicts(world: World) -> None:
    trial = Trial(world, write(".gitattributes", "*.txt binary\n"))
    assert "long.txt" in trial.sides(write("long.txt", text(at1="ours")), write("long.txt", text(at9="theirs"))).left().files


CONFIGURED = {
    "merge.renames": "false", "merge.directoryRenames": "true", "merge.renameLimit": "1", "diff.renames": "false", "diff.renameLimit": "1",
    "merge.conflictStyle": "zdiff3", "merge.ff": "false", "merge.verbosity": "5", "merge.default": "binary",
    "core.autocrlf": "true", "core.eol": "crlf", "core.ignorecase": "true", "core.quotePath": "false", "core.abbrev": "4",
    "rerere.enabled": "true", "i18n.logOutputEncoding": "latin1", "i18n.commitEncoding": "latin1", "log.date": "relative",
    "log.showSignature": "true", "diff.noprefix": "true", "format.pretty": "oneline", "commit.gpgSign": "true",
}  # fmt: skip


def test_what_is_configured_changes_no_commit(world: World) -> None:
    trial = Trial(world).sides(both(move("long.txt", "moved é.txt"), move("src", "lib")), both(write("long.txt", text(at3="t")), OTHER))
    world.sh(trial.root, "switch", "-q", "result")
    world.sh(trial.root, "commit", "-q", "--amend", "--author=Bo Ü <b@x>", "-m", "é")
    trial.tip = world.sh(trial.root, "rev-parse", "HEAD")
    expected = [trial.stage(method) for method in Method]
    assert all(isinstance(one, Staged) for one in expected)
    for key, value in CONFIGURED.items():
        world.sh(trial.root, "config", key, value)
    assert [trial.stage(method) for method in Method] == expected


def test_a_file_for_a_directory_that_was_moved_is_asked_about_whatever_is_configured(world: World) -> None:
    trial = Trial(world).sides(move("src", "lib"), write("src/new.py", "theirs\n"))
    world.sh(trial.root, "config", "merge.directoryRenames", "true")
    assert trial.left().files == ("lib/new.py",)


# Submodules and filters -----------------------------------------------------------------------------------------------------------------


def _gitlink(world: World, root: Path) -> None:
    world.sh(root, "update-index", "--add", "--cacheinfo", f"160000,{world.sh(root, 'rev-parse', 'HEAD')},sub")
    (root / "sub").mkdir(exist_ok=True)  # an absent one would be `add`ed as removed


@pytest.mark.parametrize("what", ["a new one", "moved", "removed", "its address"])
def test_a_result_that_changes_a_submodule_is_left(world: World, what: str) -> None:
    def start(root: Path) -> None:
        if what != "a new one":
            _gitlink(world, root)
        write(".gitmodules", '[submodule "sub"]\n\tpath = sub\n\turl = ../sub\n')(root)

    def theirs(root: Path) -> None:
        if what == "its address":
            write(".gitmodules", '[submodule "sub"]\n\tpath = sub\n\turl = ../evil\n')(root)
        elif what == "removed":
            (root / "sub").rmdir()
            world.sh(root, "rm", "-q", "--cached", "sub")
        else:
            _gitlink(world, root)

    found = Trial(world, start).sides(OTHER, theirs).left()
    assert found.files == ((".gitmodules",) if what == "its address" else ("sub",))
    assert "it changes submodules" in found.why


def test_a_submodule_that_the_result_leaves_alone_is_carried(world: World) -> None:
    trial = Trial(world, lambda root: _gitlink(world, root)).sides(OTHER, write("long.txt", text(at3="theirs")))
    found = trial.stage()
    assert isinstance(found, Staged)
    assert world.sh(trial.root, "ls-tree", found.commit, "sub").startswith("160000")


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 12\n"


def _lfs(root: Path) -> None:
    write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")(root)
    write("big.bin", POINTER.format("a" * 64))(root)


@pytest.mark.parametrize(
    "theirs", [write("big.bin", POINTER.format("b" * 64)), write("new.bin", "not even a pointer\n"), write("big.bin", "raw\n")]
)  # fmt: skip
def test_what_a_result_wrote_into_files_of_a_filter_is_left(world: World, theirs: Side) -> None:
    found = Trial(world, _lfs).sides(OTHER, theirs).left()
    assert "filter=lfs, which nightcrew does not run" in found.why
    assert found.files in {("big.bin",), ("new.bin",)}


def test_a_filter_that_the_result_brings_along_counts_for_its_files(world: World) -> None:
    theirs = both(write("sub/.gitattributes", "*.dat filter=lfs\n"), write("sub/new.dat", "raw\n"))
    found = Trial(world).sides(OTHER, theirs).left()
    assert found.files == ("sub/new.dat",)


@pytest.mark.parametrize("theirs", [move("big.bin", "other.bin"), remove("big.bin"), write("long.txt", text(at3="t"))])
def test_pointers_that_are_moved_removed_or_left_alone_are_carried(world: World, theirs: Side) -> None:
    trial = Trial(world, _lfs).sides(OTHER, theirs)
    assert isinstance(trial.stage(), Staged)


# Histories ------------------------------------------------------------------------------------------------------------------------------


def test_what_the_branch_has_already(world: World) -> None:
    trial = Trial(world).sides(OTHER, write("long.txt", text(at3="theirs")))
    world.sh(trial.root, "cherry-pick", trial.tip)
    trial.onto = world.commit(trial.root, "later.txt")
    assert [type(one) for one in trial.both()] == [Contained] * 2
    world.sh(trial.root, "reset", "-q", "--hard", "HEAD~2")
    world.sh(trial.root, "merge", "-q", "--squash", trial.tip)
    trial.onto = commit_all(world, trial.root, "squashed")
    assert [type(one) for one in trial.both()] == [Contained] * 2
    world.sh(trial.root, "reset", "-q", "--hard", "HEAD~1")
    world.sh(trial.root, "merge", "-q", trial.tip)
    trial.onto = world.sh(trial.root, "rev-parse", "HEAD")
    assert trial.stage() == Contained("its commits are on the branch")


def test_a_result_of_no_change(world: World) -> None:
    trial = Trial(world).sides(OTHER, lambda _: None)
    assert [type(one) for one in trial.both()] == [Contained] * 2
    trial.tip = trial.base
    assert [type(one) for one in trial.both()] == [Contained] * 2


def test_a_result_that_contains_the_branch_is_put_on_it_as_the_method_says(world: World) -> None:
    trial = Trial(world).sides(lambda _: None, write("long.txt", text(at3="theirs")))
    trial.onto = trial.base
    parents = {}
    for method in Method:
        found = trial.stage(method)
        assert isinstance(found, Staged)
        parents[method] = world.sh(trial.root, "show", "-s", "--format=%P", found.commit).split()
    assert parents == {Method.MERGE: [trial.base, trial.tip], Method.SQUASH: [trial.base], Method.REBASE: [trial.base]}


def test_unrelated_histories(world: World) -> None:
    trial = Trial(world).sides(OTHER, OTHER)
    world.sh(trial.root, "switch", "-q", "--orphan", "alone")
    trial.tip = world.commit(trial.root, "alone.txt")
    assert trial.left().why == "it shares no commit with the branch"


@pytest.mark.parametrize("others", [1, 2])
def test_a_merge_inside_a_result_is_squashed_or_merged_and_not_rebased(world: World, others: int) -> None:
    trial = Trial(world).sides(OTHER, write("long.txt", text(at3="theirs")))
    for number in range(others):
        world.sh(trial.root, "switch", "-q", "-c", f"side{number}", trial.base)
        world.commit(trial.root, f"side{number}.txt")
    world.sh(trial.root, "switch", "-q", "result")
    world.sh(trial.root, "merge", "-q", "--no-ff", "-m", "octopus", *(f"side{number}" for number in range(others)))
    trial.tip = world.sh(trial.root, "rev-parse", "HEAD")
    left = trial.stage(Method.REBASE)
    assert isinstance(left, Left) and "is a merge, and" in left.why
    for method in (Method.MERGE, Method.SQUASH):
        found = trial.stage(method)
        assert isinstance(found, Staged)
        assert {f"side{number}.txt" for number in range(others)} | {"ours.txt"} < set(world.names(trial.repo, found.commit))


def test_a_result_that_merged_the_branch_in_between_is_measured_from_there(world: World) -> None:
    """Also where both merged the other: no merge base is the best one then."""
    trial = Trial(world).sides(OTHER, write("long.txt", text(at3="theirs")))
    world.sh(trial.root, "switch", "-q", "result")
    world.sh(trial.root, "merge", "-q", "--no-edit", trial.onto)
    trial.tip = world.commit(trial.root, "theirs.txt")
    world.sh(trial.root, "switch", "-q", "main")
    world.sh(trial.root, "merge", "-q", "--no-ff", "--no-edit", "result~2")
    trial.onto = world.commit(trial.root, "later.txt")
    for method in (Method.MERGE, Method.SQUASH):
        found = trial.stage(method)
        assert isinstance(found, Staged)
        assert {"ours.txt", "theirs.txt", "later.txt"} < set(world.names(trial.repo, found.commit))


def test_more_commits_than_are_rebased(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(world).sides(OTHER, write("one.txt", "1\n"))
    world.sh(trial.root, "switch", "-q", "result")
    form = "commit refs/heads/result\ncommitter A <a@b> {0} +0000\ndata 2\nx\n{1}M 644 inline many.txt\ndata 5\n{0:04}\n\n"
    lines = "".join(form.format(number, "" if number else f"from {trial.tip}\n") for number in range(600))
    done = world.git.run(trial.repo.store, "fast-import", "--quiet", "--force", "--date-format=raw", stdin=lines.encode())
    assert done.code == 0
    trial.tip = world.sh(trial.root, "rev-parse", "result")
    left = trial.stage(Method.REBASE)
    assert isinstance(left, Left) and "601 commits, and at most 500" in left.why
    assert isinstance(trial.stage(Method.SQUASH), Staged)


def test_a_commit_that_changes_nothing_there_is_left_out_of_a_rebase(world: World) -> None:
    trial = Trial(world).sides(write("same.txt", "same\n"), write("same.txt", "same\n"))
    world.sh(trial.root, "switch", "-q", "result")
    trial.tip = world.commit(trial.root, "more.txt")
    found = trial.stage(Method.REBASE)
    assert isinstance(found, Staged)
    assert world.sh(trial.root, "log", "--format=%s", f"{trial.onto}..{found.commit}") == "change more.txt"


def test_messages_authors_and_trailers(world: World) -> None:
    trial = Trial(world).sides(OTHER, write("long.txt", text(at3="theirs")))
    world.sh(trial.root, "switch", "-q", "result")
    forged = "Nightcrew-Gate: passed by gods\nnightcrew-task : r1/other"
    words = f"Fix: é\n\nWhy.\n\n{forged}\nSigned-off-by: Bo <bo@x>"
    (trial.root / "more.txt").write_text("x\n")
    world.sh(trial.root, "add", "-A")
    world.sh(trial.root, "commit", "-q", "--author=Bo Ü <bo@x>", "--date=2001-02-03T04:05:06+0100", "-m", words)
    trial.tip = world.sh(trial.root, "rev-parse", "HEAD")
    rebased, squashed = trial.stage(Method.REBASE, gated=True), trial.stage(Method.SQUASH)
    assert isinstance(rebased, Staged) and isinstance(squashed, Staged)
    form = "--format=%an|%ae|%ad|%cn|%ct|%(trailers:only,unfold,separator=%x2c)"
    assert world.sh(trial.root, "show", "-s", "--date=raw", form, rebased.commit) == (
        "Bo Ü|bo@x|981169506 +0100|Ada Person|1700000000|"
        "Signed-off-by: Bo <bo@x>,Nightcrew-Task: r1/task,Nightcrew-Train: t1,Nightcrew-Gate: passed"
    )
    assert world.sh(
        trial.root, "show", "-s", "--format=%an|%s|%(trailers:key=Co-authored-by,valueonly,separator=%x2c)", squashed.commit
    ) == ("Ada Person|Title|Bo Ü <bo@x>")


def test_a_rebase_takes_any_author_that_a_commit_can_name(world: World) -> None:
    trial = Trial(world).sides(OTHER, write("long.txt", text(at3="theirs")))
    raw = world.git.run(trial.repo.store, "cat-file", "commit", trial.tip).out.split(b"\n")
    for who in ("<>", " <x@y>", ". <x@y>", "\u202e <x@y>", "a\\b <x@y>"):
        raw[2] = b"author " + os.fsencode(who) + b" 1 +0000"
        argv = ("hash-object", "-t", "commit", "-w", "--stdin", "--literally")
        trial.tip = world.git.run(trial.repo.store, *argv, stdin=b"\n".join(raw)).text
        assert isinstance(trial.stage(Method.REBASE), Staged), who


def test_a_commit_that_is_gone(world: World) -> None:
    repo = world.repo()
    with pytest.raises(NotFound, match="nightcrew restore r1/task"):
        staging.stage(repo, repo.head, Result("r1/task", "1234" * 10), TERMS)


# Kinds of repositories ------------------------------------------------------------------------------------------------------------------


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", kinds_of_repositories.PEOPLES)
def test_in_any_repository(world: World, kind: Callable[[World, Path], Path]) -> None:
    root = kind(world, world.tmp / "repo")
    repo = discover(world.git, root)
    world.sh(root, "switch", "-q", "-c", "result")
    tip = world.commit(root, "docs/theirs.txt")
    world.sh(root, "switch", "-q", "-c", "into", repo.head)
    onto = world.commit(root, "docs/ours.txt")
    found = staging.stage(repo, onto, Result("r1/task", tip), replace(TERMS, method=Method.REBASE))
    assert isinstance(found, Staged)
    assert {"docs/theirs.txt", "docs/ours.txt"} < set(world.names(repo, found.commit))


def test_objects_that_a_partial_clone_never_fetched(world: World) -> None:
    origin = Trial(world).sides(write("long.txt", text(at1="ours")), write("long.txt", text(at9="theirs")))
    world.sh(origin.root, "config", "uploadpack.allowFilter", "true")
    clone = world.tmp / "clone"
    world.sh(world.tmp, "clone", "-q", "--filter=blob:none", "--no-checkout", origin.root.as_uri(), os.fspath(clone))
    world.sh(clone, "switch", "-q", "main")
    found = staging.stage(discover(world.git, clone), origin.onto, Result("r1/task", origin.tip), TERMS)
    assert isinstance(found, Left) and "git cannot merge it" in found.why


def test_what_a_collection_of_garbage_takes_under_it_is_written_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """`git gc --prune=now` of a person's: no ref names the merged tree yet."""
    trial = Trial(world).sides(lambda root: (root / "ours").write_text("x\n"), lambda root: (root / "theirs").write_text("x\n"))
    merge, pruned = tree_merge.merge, list[str]()

    def merge_and_prune(*args: Any) -> tuple[str, tuple[str, ...]]:
        found = merge(*args)
        if len(pruned) < 3:
            pruned.append(found[0])
            world.sh(trial.root, "prune", "--expire=now")
            assert world.git.run(trial.repo.store, "cat-file", "-e", found[0], accept=(0, 1, 128)).code
        return found

    monkeypatch.setattr(tree_merge, "merge", merge_and_prune)
    staged = trial.stage(Method.SQUASH)
    assert isinstance(staged, Staged)
    assert world.sh(trial.root, "rev-parse", f"{staged.commit}^{{tree}}") == pruned[-1]
    world.sh(trial.root, "fsck", "--connectivity-only", staged.commit)
