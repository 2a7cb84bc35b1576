"""Plan files: what they mean, and what is said about each mistake."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.config import plan
from supervisor.config.toml import MAX_BYTES
from supervisor.kernel import codec
from supervisor.kernel.errors import ConfigError, UsageError
from supervisor.kernel.kind import Kind
from supervisor.kernel.spec import RunSpec, TaskSpec
from supervisor.kernel.states import TaskClass

KINDS: dict[str, Kind] = {name: Kind(name, "") for name in ("shell", "terminal")} | {
    "scout": Kind("scout", "", program=("scout", "--fast"))
}
A = '[[tasks]]\nid = "a"\ncommand = "true"\n'
Load = Callable[[str], RunSpec]
Fail = Callable[[str | bytes], str]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def loading(text: str | bytes) -> RunSpec:
        path = tmp_path / "plan.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return plan.load(path, KINDS)

    return loading


@pytest.fixture
def fail(load: Load, tmp_path: Path) -> Fail:
    """The one line that a bad plan is answered with, without the directory."""

    def failing(text: str | bytes) -> str:
        with pytest.raises(ConfigError) as caught:
            load(text)  # type: ignore[arg-type]
        assert caught.value.exit_code == 3
        assert len(caught.value.line()) < 1000
        return caught.value.line().replace(f"{tmp_path}/", "")

    return failing


def test_defaults(load: Load) -> None:
    assert load(A) == RunSpec("plan", (TaskSpec("a", "a", "shell", ("/bin/sh", "-c", "true")),), base="HEAD")


WITH_DEFAULTS = """
title = "nightly"
base = "main"
[defaults]
kind = "shell"
priority = 10
class = "batch"
timeout = "30m"
retries = 2
cores = [1, 0]
params = { SHARED = "yes" }
"""
EVERY_KEY = """
[[tasks]]
id = "b"
title = "B!"
kind = "terminal"
command = "exit 0 | cat"
prompt_file = "prompts/b.md"
after = ["a", "a"]
priority = 100
class = "interactive"
timeout = 1.5
retries = 0
cores = 2
snapshot = "deps"
sandbox = 2
network = false
gpus = [1, 0, 1]
memory_max = "2GiB"
disk_max = 3_000_000
processes_max = 99
cpu_max = "2h"
params = { TEXT = "t", YES = true, N = 7, X = 0.5 }
"""


def test_every_key_of_a_task(load: Load, tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "b.md").write_bytes(b"\xef\xbb\xbfdo\r\nit\r\n")
    made = load(WITH_DEFAULTS + EVERY_KEY + '[[tasks]]\nid = "a"\ncommand = "true"')
    assert (made.title, made.base) == ("nightly", "main")
    assert made.tasks[0] == TaskSpec(
        name="b",
        title="B!",
        kind="terminal",
        argv=("/bin/sh", "-c", "exit 0 | cat"),
        params={"TEXT": "t", "YES": "true", "N": "7", "X": "0.5"},
        prompt="do\nit\n",
        after=("a",),
        priority=100,
        task_class=TaskClass.INTERACTIVE,
        timeout_s=1.5,
        retries=0,
        cores=2,
        snapshot="deps",
        sandbox=2,
        network=False,
        gpus=(0, 1),
        memory_max=2 * 2**30,
        disk_max=3_000_000,
        processes_max=99,
        cpu_max=7200.0,
    )


def test_a_task_without_a_title_shows_the_first_line_of_its_prompt(load: Load) -> None:
    task = '[[tasks]]\nid = "a"\ncommand = "true"\nprompt = """\n\n  Mend the totals.\nThen commit."""\n'
    assert load(task).tasks[0].title == "Mend the totals."
    assert load(task + 'title = "totals"\n').tasks[0].title == "totals"


def test_what_a_task_does_not_say_is_of_the_defaults(load: Load) -> None:
    made = load(
        WITH_DEFAULTS
        + """
        [[tasks]]
        id = "a"
        command = ["sh", "-c", "exit 0"]
        [[tasks]]
        command = "true"
        prompt = "p"
        """
    )
    shared = {"priority": 10, "task_class": TaskClass.BATCH, "timeout_s": 1800.0, "retries": 2, "cores": (1, 0)}
    assert made.tasks == (
        TaskSpec("a", "a", "shell", ("sh", "-c", "exit 0"), {"SHARED": "yes"}, **shared),  # type: ignore[arg-type]
        TaskSpec("task-2", "p", "shell", ("/bin/sh", "-c", "true"), {"SHARED": "yes"}, "p", **shared),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    "title",
    ["a.b", "a:b", "-x", "", "x" * 10_000, "🦊", "\u202ertl\u2066", "$(x)", "../..", "nul\0nul", "two\nlines", "#(touch X)", "\x1b[31m"],
)
def test_a_title_is_any_text_and_kept_verbatim(load: Load, title: str) -> None:
    escaped = "".join(f"\\U{ord(char):08x}" for char in title)
    made = load(f'title = "{escaped}"\n{A}title = "{escaped}"\n')
    assert (made.title, made.tasks[0].title) == (title, title)
    assert codec.loads(TaskSpec, codec.dumps(made.tasks[0])).title == title


@pytest.mark.parametrize(
    ("written", "seconds"),
    [('"90s"', 90), ('"5m"', 300), ('"2h"', 7200), ('"1d"', 86400), ('"0.5s"', 0.5), ("7", 7), ("2.5", 2.5), ('" 5m "', 300)],
)
def test_durations(load: Load, written: str, seconds: float) -> None:
    assert load(f"{A}timeout = {written}\n").tasks[0].timeout_s == seconds


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ('comand = "x"', "unknown key plan.toml:4 comand: did you mean command?"),
        (
            "zzz = 1",
            "unknown key plan.toml:4 zzz: known: after, allow, best_of, candidates, children_max, class, command, continue_from, cores,",
        ),
        ("str = 1", "unknown key plan.toml:4 str: known:"),
        ('"line\\nbreak" = 1', "unknown key plan.toml:4 line\\nbreak: known:"),
        ('priority = "high"', "bad value plan.toml:4 tasks.priority: Input should be a valid integer, not 'high'"),
        ("priority = 1.0", "bad value plan.toml:4 tasks.priority: Input should be a valid integer, not 1.0"),
        ("priority = true", "bad value plan.toml:4 tasks.priority: Input should be a valid integer, not True"),
        ("priority = -1", "bad value plan.toml:4 tasks.priority: Input should be greater than or equal to 0, not -1"),
        ("priority = 101", "bad value plan.toml:4 tasks.priority: Input should be less than or equal to 100, not 101"),
        ("priority = 1979-05-27", "bad value plan.toml:4 tasks.priority: Input should be a valid integer"),
        (f"priority = {'9' * 5000}", "cannot read plan.toml:4: a number has more than 4300 digits"),
        (f"priority = 0x{'f' * 9000}", "bad value plan.toml:4 tasks.priority: Input should be less than or equal to 100, not such a long"),
        ("retries = -1", "bad value plan.toml:4 tasks.retries: Input should be greater than or equal to 0"),
        ("timeout = 0", "bad value plan.toml:4 tasks.timeout: Input should be greater than 0, not 0"),
        ("timeout = -1.5", "bad value plan.toml:4 tasks.timeout: Input should be greater than 0"),
        ("timeout = inf", "bad value plan.toml:4 tasks.timeout: Input should be a finite number, not inf"),
        ("timeout = nan", "bad value plan.toml:4 tasks.timeout: Input should be a finite number, not nan"),
        ("timeout = 1e309", "bad value plan.toml:4 tasks.timeout: Input should be a finite number, not inf"),
        ("timeout = true", "bad value plan.toml:4 tasks.timeout: Input should be a valid number, not True"),
        (f"timeout = {'9' * 400}", "bad value plan.toml:4 tasks.timeout: the number is too large, not 9999"),
        (f'timeout = "{"9" * 400}d"', "bad value plan.toml:4 tasks.timeout: Input should be a finite number, not inf"),
        ('timeout = "31d"', "bad value plan.toml:4 tasks.timeout: Input should be less than or equal to 2592000, not '31d'"),
        ('timeout = "-5m"', "bad value plan.toml:4 tasks.timeout: a duration is a number of seconds or text such as"),
        ('timeout = ""', "bad value plan.toml:4 tasks.timeout: a duration is"),
        ('timeout = "5 min"', "bad value plan.toml:4 tasks.timeout: a duration is"),
        ('timeout = "²s"', "bad value plan.toml:4 tasks.timeout: a duration is"),
        ('class = "royal"', "bad value plan.toml:4 tasks.class: Input should be 'interactive', 'normal' or 'batch', not 'royal'"),
        ('kind = "shel"', "bad value plan.toml:4 tasks.kind: 'shel' is not a kind of agent; did you mean shell?"),
        ("cores = 0", "bad value plan.toml:4 tasks.cores: Input should be greater than or equal to 1, not 0"),
        ("cores = [0, -1]", "bad value plan.toml:4 tasks.cores: Input should be"),
        ("sandbox = 3", "bad value plan.toml:4 tasks.sandbox: Input should be less than or equal to 2, not 3"),
        ("sandbox = true", "bad value plan.toml:4 tasks.sandbox: Input should be a valid integer, not True"),
        ('network = "no"', "bad value plan.toml:4 tasks.network: give true, false, or a list of host names such as"),
        ("network = []", "bad value plan.toml:4 tasks.network: a list names at least one host; false is no network at all"),
        (
            'network = [\n"a.org",\n"http://x"]',
            "bad value plan.toml:4 tasks.network: 'http://x' is not the name of a host: write pypi.org,",
        ),
        ('network = ["a.org"]\nsandbox = 1', 'bad value plan.toml:5 tasks.sandbox: network = ["a.org"] needs tier 2, and sandbox = 1 is'),
        ('sandbox = 0\nnetwork = ["a.org", "b.org"]', 'bad value plan.toml:4 tasks.sandbox: network = ["a.org", ...] needs tier 2'),
        ("sandbox = 1\nnetwork = false", "bad value plan.toml:4 tasks.sandbox: network = false needs tier 2, and sandbox = 1 is below it;"),
        ("network = false\nsandbox = 0", "bad value plan.toml:5 tasks.sandbox: network = false needs tier 2, and sandbox = 0 is"),
        ('snapshot = "../up"', "bad value plan.toml:4 tasks.snapshot: '../up' cannot be the name of a snapshot: 1 to 32 of a-z,"),
        ('memory_max = "1k"', "bad value plan.toml:4 tasks.memory_max: Input should be greater than or equal to 1048576, not '1k'"),
        ('disk_max = "a lot"', "bad value plan.toml:4 tasks.disk_max: a size is a number of bytes or text such as"),
        ("processes_max = 0", "bad value plan.toml:4 tasks.processes_max: Input should be greater than or equal to 1, not 0"),
        ("cpu_max = 0.5", "bad value plan.toml:4 tasks.cpu_max: Input should be greater than or equal to 1, not 0.5"),
        ("title = 3", "bad value plan.toml:4 tasks.title: Input should be a valid string, not 3"),
        ('after = "b"', "bad value plan.toml:4 tasks.after: give a list of ids, or"),
        ('after = ["b"]', "bad value plan.toml:4 tasks.after: no task has the id 'b'; known: a"),
        ('after = ["a"]', "bad value plan.toml:4 tasks.after: the tasks wait for each other: a -> a"),
        ('prompt = "p"\nprompt_file = "f"', "bad value plan.toml:1 tasks: give prompt or prompt_file, not both"),
        ('prompt_file = "absent.md"', "bad value plan.toml:4 tasks.prompt_file: absent.md: there is no such file"),
        ('prompt_file = "."', "bad value plan.toml:4 tasks.prompt_file:"),
        ('prompt_file = "a\\u0000b"', "bad value plan.toml:4 tasks.prompt_file: a\\x00b: embedded null byte"),
        ('params = { "1A" = "x" }', "bad value plan.toml:4 tasks.params: '1A' cannot be the name of an environment variable"),
        ('params = { "A=B" = "x" }', "bad value plan.toml:4 tasks.params: 'A=B' cannot be the name of an environment variable"),
        ('params = { NIGHTCREW_TASK = "x" }', "bad value plan.toml:4 tasks.params: NIGHTCREW_TASK: names that begin with NIGHTCREW_"),
        ('params = { A = "nul\\u0000" }', "bad value plan.toml:4 tasks.params: A holds a NUL character"),
        ("params = { A = inf }", "bad value plan.toml:4 tasks.params.A: Input should be"),
        ("params = { int = [1] }", "bad value plan.toml:4 tasks.params.int: Input should be"),
        (f"params = {{ A = 0x{'f' * 9000} }}", "bad value plan.toml:4 tasks.params: A: the number is too large; write it as text"),
    ],
)
def test_a_bad_line_in_a_task_is_named(fail: Fail, line: str, answer: str) -> None:
    assert fail(f"{A}{line}\n").startswith(answer)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('[[tasks]]\nid = "a"\n', "missing key plan.toml:1 tasks.command: a task of kind shell needs a command"),
        ('[[tasks]]\ncommand = ""\n', "bad value plan.toml:2 tasks.command: a command must not be empty, not ''"),
        ("[[tasks]]\ncommand = []\n", "bad value plan.toml:2 tasks.command: a command must not be empty, not []"),
        ('[[tasks]]\ncommand = "a\\u0000b"\n', "bad value plan.toml:2 tasks.command: a command cannot hold a NUL character"),
        ('[[tasks]]\ncommand = ["a", "\\u0000"]\n', "bad value plan.toml:2 tasks.command: a command cannot hold a NUL character"),
        ('[[tasks]]\ncommand = ["a", 1]\n', "bad value plan.toml:2 tasks.command"),
        ('[[tasks]]\nid = "a b"\ncommand = "x"\n', "bad value plan.toml:2 tasks.id: an id has 1 to 64 letters, digits"),
        ('[[tasks]]\nid = "a\\n"\ncommand = "x"\n', "bad value plan.toml:2 tasks.id: an id has 1 to 64"),
        (f"{A}{A}", "bad value plan.toml:5 tasks.id: 'a' is already the id of another task"),
        (
            f'[[tasks]]\nid = "task-2"\ncommand = "x"\n{A}[[tasks]]\nid = "task-2"\ncommand = "x"',
            "bad value plan.toml:8 tasks.id: 'task-2'",
        ),
        ("tasks = []", "bad value plan.toml:1 tasks: List should have at least 1 item"),
        ("tasks = 3", "bad value plan.toml:1 tasks: Input should be a valid list, not 3"),
        ("tasks = [3]", "bad value plan.toml:1 tasks: Input should be"),
        ('title = "x"', "missing key plan.toml:1 tasks: it must be given"),
        ('[[task]]\nid = "a"\n', "unknown key plan.toml:1 task: did you mean tasks? (1 more mistake)"),
        (f"defaults = 1\n{A}", "bad value plan.toml:1 defaults: Input should be"),
        (f"[defaults]\nretries = -1\n{A}", "bad value plan.toml:2 defaults.retries: Input should be greater"),
        (f'[defaults]\ntitel = "x"\n{A}', "unknown key plan.toml:2 titel: "),
        (f'[defaults]\ncommand = "x"\n{A}', "unknown key plan.toml:2 command: "),
        (f"defaults.params.\"1\" = 'x'\n{A}", "bad value plan.toml:1 defaults.params: '1' cannot be"),
        (
            'tasks = [\n  { id = "a", command = "x" },\n  { id = "b", comand = "x" },\n]',
            "unknown key plan.toml:3 comand: did you mean command?",
        ),
        (
            f'{A}prompt = """\n[[tasks]]\nid = "b"\nretries = "no"\n"""\nretries = "yes"\n',
            "bad value plan.toml:9 tasks.retries: Input should be a valid integer, not 'yes'",
        ),
    ],
)
def test_a_bad_plan_is_named(fail: Fail, text: str, answer: str) -> None:
    assert fail(text).startswith(answer)


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"", "cannot read plan.toml: it is empty"),
        (b" \r\n\t\n", "cannot read plan.toml: it is empty"),
        (b"\xef\xbb\xbf", "cannot read plan.toml: it is empty"),
        (b"# nothing\n", "missing key plan.toml:1 tasks"),
        (b'a = 1\ntitle = "\xff"\n', "cannot read plan.toml:2: it is not UTF-8 text; next: save it as UTF-8"),
        (b'title = "\xed\xa0\x80"\n', "cannot read plan.toml:1: it is not UTF-8 text"),
        ("title = 'a'".encode("utf-16"), "cannot read plan.toml:1: it is not UTF-8 text"),
        (b'title = "a\x00b"\n', "cannot read plan.toml:1: not valid TOML"),
        (b'title = "\\ud800"\n', "cannot read plan.toml:1: not valid TOML"),
        (b"title = 'a'\rbase = 'b'\n", "cannot read plan.toml:1: not valid TOML"),
        (b'x = "a"\n\nid = "b"\nid = "c"\n', "cannot read plan.toml:4: not valid TOML: Cannot overwrite a value"),
        (b"[a]\n[a]\n", "cannot read plan.toml:2: not valid TOML: Cannot declare"),
        (b"\n\ntitle =", "cannot read plan.toml:3: not valid TOML"),
        (b'title = """\nopen', "cannot read plan.toml:2: not valid TOML"),
        (b"a = " + b"[" * 400_000, "cannot read plan.toml: tables or arrays are nested too deeply"),
        (b"a = " + b"{a=" * 100_000, "cannot read plan.toml: tables or arrays are nested too deeply"),
        (b"\na" + b".a" * 400_000 + b" = 1\n", "cannot read plan.toml:2: a key of 400001 parts; the most that any key has is 32"),
        (b"[a" + b" . 'a'" * 100_000 + b"]\n", "cannot read plan.toml:1: a key of 100001 parts"),
        (b"x = {a" + b".a" * 100_000 + b" = 1}\n", "cannot read plan.toml:1: a key of 100001 parts"),
        (b"a" * (MAX_BYTES + 1), f"cannot read plan.toml: it is larger than {MAX_BYTES} bytes; next: put long prompts into prompt_file"),
        (b"a" * 50_000_000, "cannot read plan.toml: it is larger than"),
        (b"k" * 900_000 + b" = 1", "unknown key plan.toml:1 kkk"),
    ],
    ids=range(22),
)
def test_a_file_that_is_no_plan_at_all(load: Load, tmp_path: Path, data: bytes, answer: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(data)  # type: ignore[arg-type]
    assert caught.value.line().replace(f"{tmp_path}/", "").startswith(answer)


@pytest.mark.parametrize(
    "change", [lambda text: "\ufeff" + text, lambda text: text.replace("\n", "\r\n"), lambda text: text.replace(" ", "\t")]
)
def test_what_editors_do_to_a_file_does_not_matter(load: Load, change: Callable[[str], str]) -> None:
    text = 'title = "t"\n[[tasks]]\nid = "a"\ncommand = "true"\nafter = [  ]\n'
    assert load(change(text)) == load(text)


def test_prose_with_many_dots_is_no_long_key(load: Load) -> None:
    prompt = "a.b." * 50_000
    assert load(f'{A}prompt = "{prompt}" # {"x.y" * 100}\n').tasks[0].prompt == prompt


def test_a_plan_that_cannot_be_read(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "absent", "there is no such file; next: check the path"), (tmp_path, "Is a directory")):
        with pytest.raises(ConfigError, match=f"cannot read {path}: {why}"):
            plan.load(path, KINDS)


def test_a_ring_of_tasks_is_shown(fail: Fail) -> None:
    ring = "".join(f'[[tasks]]\nid = "t{number}"\ncommand = "x"\nafter = ["t{(number + 1) % 3}"]\n' for number in range(3))
    assert fail(A + ring).startswith("bad value plan.toml:7 tasks.after: the tasks wait for each other: t0 -> t1 -> t2 -> t0")


def test_a_long_ring_is_shortened(fail: Fail) -> None:
    size = 3000
    ring = "".join(f'[[tasks]]\nid = "t{number}"\ncommand = "x"\nafter = ["t{(number + 1) % size}"]\n' for number in range(size))
    assert fail(ring).endswith("-> t9 -> (2990 more) -> t0")


def test_thousands_of_tasks_and_one_wrong_name(fail: Fail) -> None:
    many = "".join(f'[[tasks]]\nid = "t{number}"\ncommand = "x"\n' for number in range(3000))
    assert fail(many + 'after = ["zzz"]').startswith("bad value plan.toml:9001 tasks.after: no task has the id 'zzz'; known: t0, t1, t10,")


# `nightcrew add` -----------------------------------------------------------------------------------------------------------------------


def single(*words: str, **options: object) -> TaskSpec:
    return plan.single(words, KINDS, {"id": "task", "title": None, "kind": None, **options}).tasks[0]


def test_one_word_is_given_to_the_shell_and_several_are_run_as_they_are() -> None:
    assert single("make test && true").argv == ("/bin/sh", "-c", "make test && true")
    assert single("./x", "-a", "b c").argv == ("./x", "-a", "b c")
    made = single("x", id="n", title="T", kind="terminal", priority=3, task_class="batch", timeout="5m", retries=1)
    assert made == TaskSpec("n", "T", "terminal", ("/bin/sh", "-c", "x"), priority=3, task_class=TaskClass.BATCH, timeout_s=300, retries=1)


@pytest.mark.parametrize(
    ("words", "options", "answer"),
    [
        (("x",), {"kind": "shel"}, "bad value --kind: 'shel' is not a kind of agent; did you mean shell?"),
        (("x",), {"id": "a b"}, "bad value id: an id has 1 to 64"),
        (("x",), {"timeout": "soon"}, "bad value timeout: a duration is"),
        (("x",), {"task_class": "royal"}, "bad value class: Input should be"),
        (("",), {}, "bad value command: a command must not be empty"),
        (("a\0b",), {}, "bad value command: a command cannot hold a NUL character"),
        (("x",), {"network": False, "sandbox": 1}, "bad value --sandbox: network = false needs tier 2"),
        (("x",), {"network": ("a.org",), "sandbox": 0}, 'bad value --sandbox: network = ["a.org"] needs tier 2'),
        (("x",), {"network": ()}, "bad value network: a list names at least one host"),
        (("x",), {"snapshot": "A B"}, "bad value snapshot: 'A B' cannot be the name of a snapshot"),
        (("x",), {"prompt": "a", "prompt_file": "b"}, "bad value: give prompt or prompt_file, not both"),
    ],
)
def test_what_a_plan_refuses_the_command_line_refuses_too(words: tuple[str, ...], options: dict[str, object], answer: str) -> None:
    with pytest.raises(UsageError) as caught:
        single(*words, **options)
    assert caught.value.line().startswith(answer)


def test_the_title_of_a_typed_task_is_what_was_typed() -> None:
    assert single(*shlex.split("grep -n '$(x)' '../..'")).title == "grep -n $(x) ../.."


def test_arguments_that_are_no_text_are_run_as_they_are_and_shown_escaped() -> None:
    made = single("cat", "caf\udce9")
    assert (made.argv, made.title) == (("cat", "caf\udce9"), "cat caf\\udce9")
    assert single("x", title="\udcff").title == "\\udcff"
