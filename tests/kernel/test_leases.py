"""Leases: who blocks whom, whose a path is, and what was written without one."""

from __future__ import annotations

from supervisor.kernel import leases
from supervisor.kernel.leases import Beside, Lease, Mode, Wanted, blocks


def lease(glob: str, task: str, mode: Mode = Mode.EXCLUSIVE, fence: int = 1) -> Lease:
    return Lease(fence, "p", glob, mode, task, 1, 0.0, 1e9)


def test_who_blocks_whom() -> None:
    held = [lease("src", "r/a"), lease("doc", "r/b", Mode.SHARED, 2)]

    def blockers(wanted: Wanted, kin: frozenset[str] = frozenset()) -> list[str]:
        return [one.task for one in held if blocks(one, wanted, kin)]

    assert blockers(Wanted("r/c", ("src/x", "doc"), Mode.EXCLUSIVE)) == ["r/a", "r/b"]
    assert blockers(Wanted("r/c", ("doc/x",), Mode.SHARED)) == []
    assert blockers(Wanted("r/a", ("src/y",), Mode.EXCLUSIVE)) == []
    assert blockers(Wanted("r/c", ("src",), Mode.EXCLUSIVE), frozenset({"r/a"})) == []


def test_a_path_of_an_agent_is_found_below_its_worktree_by_its_words() -> None:
    assert leases.below_root("/w/t/src/x.py", ["/other", "/w/t"]) == "src/x.py"
    assert leases.below_root("../x.py", ["/w/t"], "/w/t/src") == "x.py"
    assert leases.below_root("x.py", ["/w/t"]) == "x.py"
    for elsewhere in ("/etc/passwd", "/w/tt/x", "../../x", "/w/t", "", "a\0"):
        assert leases.below_root(elsewhere, ["/w/t"]) is None


def test_a_result_lists_a_bounded_number_of_paths() -> None:
    held = (lease("src", "r/a"),)
    warn, strict = Beside(("doc",), held), Beside(("doc",), held, strict=True)
    assert leases.unleased(["src/x", "doc/y", "z"], warn) == {"total": 1, "paths": [{"path": "src/x", "holder": "r/a"}]}
    assert leases.unleased(["doc/y", "z"], strict) == {"total": 1, "paths": [{"path": "z", "holder": None}]}
    assert leases.unleased(["doc/y", "z"], warn) is None
    many = leases.unleased([f"src/{number}" for number in range(500)], warn)
    assert many is not None
    assert (many["total"], len(many["paths"])) == (500, leases.UNLEASED_MAX)  # type: ignore[arg-type]
    assert leases.unleased_note(many) == ("wrote 500 files that others held (r/a): src/0, src/1, src/2, ...",)
