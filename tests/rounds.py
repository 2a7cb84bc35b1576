"""How a test run is set up, whoever starts it: signals, property tests, and what root runs after an ordinary user.

Root runs the suite as an ordinary user, whom most of what protects files binds, beside it itself what is different for root or needs
root, and then itself what else that user had to skip (`make test`).
"""

from __future__ import annotations

import gc
import os
import random
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

RANDOM = "NIGHTCREW_TEST_RANDOM"
"""Set by `make soak`: property tests choose other examples each time. Otherwise a change fails for what it changed, or not at all."""
SEED = "NIGHTCREW_TEST_SEED"
"""Set by who repeats a random test: what it draws from."""
DIFFERS_FOR_ROOT = (
    "tests/agents/zygote/test_sandbox.py",
    "tests/server/test_limits.py",
    "tests/server/test_sandbox.py",
    "tests/server/test_snapshot_edges.py::test_a_worktree_of_which_somebody_removed_everything_holds_it_no_longer",
    "tests/server/test_snapshot_tasks.py::test_with_every_mount_gone_work_is_shown_taken_and_cleaned",
    "tests/doctor/test_environments.py",
    "tests/doctor/test_machine.py",
    "tests/doctor/test_state.py",
    "tests/host/sandbox/",
    "tests/host/test_cgroups.py",
    "tests/host/test_files.py",
    "tests/host/test_foreign.py",
    "tests/host/test_freezing.py",
    "tests/host/test_host.py",
    "tests/host/test_leftovers.py",
    "tests/host/test_limits.py::test_in_a_user_namespace_only_its_own_processes_count_and_more_are_refused",
    "tests/host/test_limits.py::test_means_are_those_of_the_host",
    "tests/host/test_limits.py::test_root_is_never_held_so_and_the_probe_knows",
    "tests/host/test_mounts.py",
    "tests/host/test_processes.py",
    "tests/host/test_secrets.py",
    "tests/host/test_usage.py",
    "tests/independent/test_caches.py",
    "tests/worktrees/test_confined_repositories.py::test_a_repository_that_was_turned_against_us",
    "tests/worktrees/test_confined_worktrees.py::test_a_worktree_that_was_turned_against_us",
    "tests/worktrees/test_overlay.py",
    "tests/worktrees/test_private_repository.py::test_what_leads_outside_cannot_be_written_inside",
    "tests/worktrees/test_private_repository.py::test_what_the_agent_sets_and_makes_stays_in_its_own_repository",
    "tests/worktrees/test_securing.py::test_a_helper_that_does_not_answer_is_ended_with_all_its_sandbox",
    "tests/worktrees/test_securing.py::test_a_warm_process_that_somebody_ended_is_replaced",
    "tests/worktrees/test_securing.py::test_many_at_once",
    "tests/worktrees/test_securing.py::test_where_no_sandbox_works_any_more_nothing_is_touched",
    "tests/worktrees/test_securing.py::test_without_namespaces_of_our_own_bubblewrap_starts_it",
    "tests/worktrees/test_templates.py::test_a_changed_template_is_not_loaded",
    "tests/worktrees/test_templates.py::test_ignored_files_of_the_checkout_are_copied_with_their_mode",
)
"""Where sandboxes, limits, mounts or modes are at work: each has a branch for root, or holds for root by other means. Each is the beginning
of a test's id. Not listed is what needs root, since the ordinary user skips it, and what is alike for everybody in a sandbox that is proven
for both."""
NEEDS_ROOT = (
    "tests/agents/clients/test_claude_session.py::*",
    "tests/agents/clients/test_homes.py::test_it_*",
    "tests/agents/clients/test_kinds_test.py::test_a_real_program_*",
    "tests/agents/protocols/test_real_clis.py::*",
    "tests/agents/runner/test_output.py::*disk*",
    "tests/agents/turns/test_real_agents.py::*",
    "tests/agents/zygote/test_server.py::test_another_user_is_turned_away",
    "tests/agents/zygote/test_venv.py::*overlay*",
    "tests/cli/test_mcp_install.py::*_is_told_*",
    "tests/server/test_agents.py::test_each_class_has_its_share_of_the_processor_*",
    "tests/server/test_answering.py::test_the_real_*",
    "tests/server/mapping/test_book.py::*disk*",
    "tests/server/test_codex_hooks.py::*",
    "tests/server/test_full_disk.py::*",
    "tests/server/test_leases_real.py::*",
    "tests/server/test_memory_real.py::*",
    "tests/server/test_past_the_gateway.py::test_the_real_*",
    "tests/server/test_pause.py::*[[]group]",
    "tests/server/test_preemption.py::test_claude_code_*",
    "tests/server/test_real_agent.py::*",
    "tests/server/test_real_cron.py::*",
    "tests/server/test_sending_claude.py::*",
    "tests/server/test_storage.py::TestFullDisk::*",
    "tests/server/test_storage.py::test_a_directory_of_another_user_is_refused",
    "tests/doctor/test_crew.py::test_a_mount_*",
    "tests/views/web/test_page.py::test_nothing_serious_*",
    "tests/views/web/test_pages.py::test_nothing_serious_*",
    "tests/gateway/account/test_disk.py::*",
    "tests/gateway/clients/test_alone.py::*",
    "tests/gateway/clients/test_led_away.py::*",
    "tests/gateway/clients/test_turns.py::*",
    "tests/gateway/test_recording.py::*disk*",
    "tests/host/test_disk.py::test_a_watch_*",
    "tests/host/test_disk.py::test_what_is_mounted_*",
    "tests/host/test_trees.py::test_nothing_is_removed_on_another_file_system",
    "tests/independent/test_attacker.py::*",
    "tests/store/test_store.py::*disk*",
    "tests/store/test_store.py::test_a_read_only_file_system_*",
    "tests/memory/test_approving.py::*disk*",
    "tests/memory/test_full_disk.py::*",
    "tests/memory/test_hostile.py::*[[]*device]",
    "tests/test_packaging.py::test_as_user_passes_*",
    "tests/worktrees/test_backends.py::*disk*",
    "tests/worktrees/test_backends.py::*[[]overlay[],]*",
    "tests/worktrees/test_backends.py::*[[]overlay-[0-9]*",
    "tests/worktrees/test_backends.py::*[[]reflink*",
    "tests/worktrees/test_environments.py::*disk*",
    "tests/worktrees/test_failures.py::test_a_place_that_cannot_be_written_at_all_is_not_full",
    "tests/worktrees/test_failures.py::test_a_disk_without_a_file_left_is_full",
    "tests/worktrees/test_full_disk.py::test_however_little_room_there_is*",
    "tests/worktrees/test_intake_hostile.py::*disk*",
    "tests/worktrees/test_rescue.py::test_the_agent_replaced_the_worktrees_own_git_directory[[]confined]",
    "tests/worktrees/test_repository.py::test_somebody_elses_*",
)
"""Patterns of the ids of nearly all tests that the ordinary user skips, so that root runs them beside his round. Real agents are here
because `make clients` installs them below root's home, which he cannot see. After both rounds, root runs those that are missing here one
after the other."""
ALLOWED_SKIPS = {
    "*make clients*": "real agents and axe-core are 2 GB from other registries: `make clients` brings them, and CI runs it before",
    "no package index answers": "needs a network",
    "the extra nightcrew?semantic? is not installed": "an extra that no default installation has",
    "read-only in a sandbox: test_private_repository proves it": "the variant cannot happen: a confined agent cannot write there",
    "its repository of its own goes as a whole": "the variant cannot happen: nothing of it is left to be removed",
    "its repository is the person's where no sandbox works": "about a host without a sandbox",
    "control groups hold it here": "about a host without control groups",
    "there is a GPU here": "about a host without a GPU",
    "this /dev has the usual devices only": "needs hardware",
    "lanes need two cores": "needs hardware",
    "one core is all there is": "needs hardware",
    "* has no such mark": "needs ext4 under the temporary directory",
    "no huge page on demand here*": "a setting of the kernel",
    "this kernel shares no time between sessions": "a setting of the kernel",
    "this kernel forbids it to everybody": "a setting of the kernel",
    "the queue holds * events here": "a setting of the kernel: more events than a test can make",
    "this machine has no hierarchies of version 1 that we may write to": "hosts have version 1 or version 2 of control groups",
    "no hierarchy of version 2, or no setpriv": "hosts have version 1 or version 2 of control groups",
    "this process may not have as many open files": "a limit of the shell that starts the tests",
    "about workers": "the last round has none; the ordinary user's has",
}
"""Patterns of reasons for which neither root nor the ordinary user need run a test on a Debian where root installs packages, and why."""
_INHERITED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


def examples(count: int) -> int:
    """Of a property test: as many in `make soak`, which chooses others each time; a third of them where they are always the same."""
    return count if os.environ.get(RANDOM) else max(count // 3, 1)


def choose_examples() -> None:
    """No deadline: a busy machine is no failure. Hypothesis also draws the numbers and words that stand in the modules which are imported
    by then, and finds those once in each process: in `make test` that is another set of examples for each worker, and a second of it."""
    is_random = bool(os.environ.get(RANDOM))
    if not is_random:
        vars(providers)["is_local_module_file"] = lambda _path: False
    settings.register_profile("nightcrew", deadline=None, print_blob=True, derandomize=not is_random, max_examples=examples(100))
    settings.load_profile("nightcrew")


def seed(*, is_long: bool) -> int:
    """What a random test draws from: what `SEED` says, another each time in `make soak` and in every long form, else always the same."""
    if said := os.environ.get(SEED):
        return int(said)
    return random.SystemRandom().randrange(2**32) if is_long or os.environ.get(RANDOM) else 1


def mark_seeded(items: Iterable[pytest.Item]) -> None:
    """Mark the tests that draw from the fixture `seed`, so that `make soak` runs them with others."""
    for item in items:
        if "seed" in getattr(item, "fixturenames", ()) and "seed" not in getattr(getattr(item, "callspec", None), "params", ()):
            item.add_marker("seeded")


def reset_signals() -> None:
    """A shell's `&`, nohup and cron have their children ignore signals, and so would all that a test starts; what is caught is not
    inherited."""
    for number in _INHERITED:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@contextmanager
def no_garbage() -> Iterator[None]:
    """What is made meanwhile is kept to the end, and the garbage collector neither runs nor looks at it afterwards: the 7,000 tests and
    their modules are half a million objects, which took four of a worker's nine seconds for collecting the tests."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def thin(items: Iterable[pytest.Item]) -> None:
    """Let some variants of a test be for `make soak` only.

    Of a test that is marked `one_in(COUNT)`, all but the first of each COUNT. A count that divides the length of none of its parameters'
    lists leaves each of their values in.

    Of a test that is marked `in_turns`, every other one, like the white fields of a chess board: of two lists each value is left in, with
    half of the other list's. Tests take turns: what has but one list, of two values, keeps the first one, and the next test the second."""
    seen: Counter[str] = Counter()
    turns: dict[str, int] = {}
    values: dict[tuple[str, str], list[object]] = {}
    for item in items:
        name = item.nodeid.partition("[")[0]
        params = getattr(getattr(item, "callspec", None), "params", {})
        if (mark := item.get_closest_marker("one_in")) is not None:
            if seen[name] % mark.args[0]:
                item.add_marker("soak")
            seen[name] += 1
        elif item.get_closest_marker("in_turns") is not None and params:
            turn = turns.setdefault(name, len(turns))
            if (turn + sum(_place(values.setdefault((name, key), []), value) for key, value in params.items())) % 2:
                item.add_marker("soak")


def _place(known: list[object], value: object) -> int:
    """Where a value is in the list of those that came before, to which it is added."""
    for at, each in enumerate(known):
        if each is value:
            return at
    known.append(value)
    return len(known) - 1


class UnlistedSkips:
    """Fails the session when a test was skipped for a reason that `ALLOWED_SKIPS` does not have."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):  # an expected failure has a text there
            reason = str(report.longrepr[2]).removeprefix("Skipped: ")
            if not is_allowed_skip(reason):
                self._found.append(f"{report.nodeid}: {reason}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._found and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._found:
            terminalreporter.section("skipped for a reason that ALLOWED_SKIPS in tests/rounds.py does not have", red=True)
            for line in self._found:
                terminalreporter.line(line)


def is_allowed_skip(reason: str) -> bool:
    """Return whether a test may be skipped for this reason on a machine with everything that `make test` installs."""
    return any(fnmatchcase(reason, pattern) for pattern in ALLOWED_SKIPS)


class Skipped:
    """Writes the ids of the tests that were skipped, one a line, into a file that is there."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._ids: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self._ids.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        with self._file.open("r+") as file:  # no O_CREAT: where everybody may write, the kernel refuses that for another user's file
            file.write("\n".join(sorted(self._ids)) + "\n")


class Chosen:
    """Only the tests with these ids, those whose id has one of these beginnings, and those whose id is like one of these patterns."""

    def __init__(self, ids: frozenset[str], beginnings: tuple[str, ...] = (), patterns: tuple[str, ...] = ()) -> None:
        self._ids, self._beginnings, self._patterns = ids, beginnings, patterns
        self._files = frozenset(each.partition("::")[0] for each in (*ids, *beginnings, *patterns))

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """A file of tests that has none of them is not even imported."""
        if collection_path.suffix != ".py":
            return None
        name = collection_path.relative_to(config.rootpath).as_posix()
        return None if name in self._files or name.startswith(self._beginnings) else True

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept = [self.wants(item.nodeid) for item in items]
        config.hook.pytest_deselected(items=[item for item, keep in zip(items, kept, strict=True) if not keep])
        items[:] = [item for item, keep in zip(items, kept, strict=True) if keep]

    def wants(self, name: str) -> bool:
        """Whether the test of this id is one of them."""
        return name in self._ids or name.startswith(self._beginnings) or any(fnmatchcase(name, each) for each in self._patterns)


def what_differs() -> Chosen:
    """What is different for root, and what is known to need root."""
    return Chosen(frozenset(), DIFFERS_FOR_ROOT, NEEDS_ROOT)


def what_was_skipped(user: Path, beside: Path | None = None) -> Chosen:
    """Return the tests that the ordinary user skipped and that root did not run beside that: those outside `what_differs`, and those that
    root's own round skipped too. Both files are as `Skipped` writes them."""
    differs = what_differs()
    again = frozenset(beside.read_text().splitlines()) if beside is not None else frozenset()
    return Chosen(frozenset(each for each in user.read_text().splitlines() if each in again or not differs.wants(each)))
