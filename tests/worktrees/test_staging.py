"""One result on top of a commit: what comes of it for whatever two sides can do to files, on real repositories."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from supervisor.kernel.train_orders import Method
from tests.worktrees.staging_kit import OTHER, Side, Trial, both, chmod, crlf, link, move, remove, text, write
from worktrees import repository, tree_merge
from worktrees.landing import Staged

if TYPE_CHECKING:
    from tests.worktrees.conftest import World


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
        assert set(repository.files(trial.repo, found.commit, [name])) == {name}
        assert not repository.files(trial.repo, trial.onto, [name])
        assert set(world.names(trial.repo, tree_merge.replaced(trial.repo, found.commit, {name: None}))) == every - {name}
    trial = trial.sides(both(*(write(name, "ours\n") for name in ODD)), both(*(write(name, "theirs\n") for name in ODD)))
    assert set(trial.left().files) == set(ODD)
    assert trial.left().why.isprintable()


def test_more_names_than_a_command_line_holds(world: World) -> None:
    names = [f"{'x' * 200}/{number}" for number in range(12_000)]
    repo = world.repo()
    assert repository.files(repo, repo.head, [*names, "f0.txt"]).keys() == {"f0.txt"}


def test_a_directory_takes_the_place_of_a_file_and_back(world: World) -> None:
    trial = Trial(world).sides(both(remove("long.txt"), write("long.txt/in", "ours\n")), OTHER)
    was = repository.files(trial.repo, trial.base, ["long.txt"])
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
