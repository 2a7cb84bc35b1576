"""The command that a kind makes of a task."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.kinds import kinds
from supervisor.kernel import kind
from supervisor.kernel.conversations import How, Origin
from supervisor.kernel.kind import Kind, Place, version
from supervisor.kernel.prompt import ARGUMENT_MAX
from supervisor.kernel.spec import TaskSpec

PLACE = Place("/run/prompt.md", "/run/inbox", "/run/out", "4be0643f-1d98-573b-97cd-ca98a65347dd", sandboxed=True, variables={})
OURS = Kind(
    "ours", "", binary="ours", program=("ours",), headless=("run", "--model", "{model}", "-n={steps_max}", "--", "{prompt}"),
    interactive=("--tools", "{allow}", "{permissions}", "{gateway}", "--", "{prompt}"),
    allow=("Bash",), sandboxed=("--free",), unsandboxed=("--ask", "{model}"), gateway=("--at", "{openai_url}"),
    env={"PLAIN": "1", "KEY": "{anthropic_token}"},
)  # fmt: skip


def task(prompt: str | None = "do it", **keys: object) -> TaskSpec:
    return replace(TaskSpec("a", "a", "ours", (), prompt=prompt), **keys)  # type: ignore[arg-type]


def argv(spec: TaskSpec, place: Place = PLACE, ours: Kind = OURS) -> tuple[str, ...]:
    return kind.command(ours, spec, place).argv


def test_a_word_without_a_value_is_left_out_with_the_option_before_it() -> None:
    assert argv(task()) == ("ours", "run", "--", "do it")
    assert argv(task(model="m", steps_max=3)) == ("ours", "run", "--model", "m", "-n=3", "--", "do it")
    assert argv(task(None, interactive=True, allow=())) == ("ours", "--free")


def test_what_it_may_do_depends_on_the_sandbox_and_on_what_the_task_allows() -> None:
    free = replace(PLACE, sandboxed=False)
    assert argv(task(interactive=True)) == ("ours", "--tools", "Bash", "--free", "--", "do it")
    assert argv(task(interactive=True), free) == ("ours", "--", "do it")
    said = argv(task(interactive=True, allow=("A(b *)", "C"), model="m"), free)
    assert said == (
        "ours",
        "--tools",
        "A(b *),C",
        "--ask",
        "m",
        "--",
        "do it",
    )


def test_what_gives_it_its_prompts_runs_its_command_and_only_without_a_person() -> None:
    driver = ("driver", "--prompt-file", "{prompt_file}", "--inbox", "{inbox}", "--model", "{model}", "--")
    streamed = replace(OURS, prompt="stream", protocol="acp", headless=("--acp",), driver=driver)
    given = ("driver", "--prompt-file", "/run/prompt.md", "--inbox", "/run/inbox")
    assert argv(task(), ours=streamed) == (*given, "--", "ours", "--acp")
    assert argv(task(interactive=True), ours=streamed) == argv(task(interactive=True))
    anything = replace(streamed, headless=kind.COMMAND, program=(), binary="")
    assert argv(task("{model}", argv=("{inbox}", "x"), model="m"), ours=anything) == (*given, "--model", "m", "--", "{inbox}", "x")
    assert (anything.takes_command, streamed.takes_command, streamed.takes_input, OURS.takes_input) == (True, False, True, False)


def test_what_a_task_may_cost_reaches_those_that_can_wrap_up_before() -> None:
    claude = kind.command(kinds()["claude"], task(cost_max=0.25), PLACE)
    assert claude.argv[claude.argv.index("--max-budget-usd") + 1] == "0.250000"
    assert "--max-budget-usd" not in kind.command(kinds()["claude"], task(), PLACE).argv
    usual = task(cost_max=20.0, steps_max=500, assumed=("cost_max", "steps_max"))
    argv = kind.command(kinds()["claude"], usual, PLACE).argv
    assert "--max-budget-usd" not in argv, "the gateway alone knows which models have a price"
    assert argv[argv.index("--max-turns") + 1] == "500"
    assert kind.command(kinds()["builtin"], task(cost_max=2), PLACE).env == {"NIGHTCREW_COST_MAX": "2.000000"}
    assert kind.command(kinds()["builtin"], task(tokens_max=9), PLACE).env == {"NIGHTCREW_TOKENS_MAX": "9"}
    assert kind.command(kinds()["builtin"], task(), PLACE).env == {}


def test_words_and_variables_of_the_gateway_are_there_when_it_is() -> None:
    through = replace(PLACE, variables={"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "ANTHROPIC_AUTH_TOKEN": "t"})
    made = kind.command(OURS, task(interactive=True), through)
    assert made.argv == ("ours", "--tools", "Bash", "--free", "--at", "http://127.0.0.1:1/v1", "--", "do it")
    assert made.env == {"PLAIN": "1", "KEY": "t"}
    assert kind.command(OURS, task(), PLACE).env == {"PLAIN": "1"}


def test_a_task_with_a_command_of_its_own_runs_it_as_it_is() -> None:
    made = kind.command(kinds()["shell"], TaskSpec("a", "a", "shell", ("echo", "{model}"), prompt="x"), PLACE)
    assert (made.argv, made.stdin, made.env, made.terminal) == (("echo", "{model}"), "", {}, False)
    assert kind.command(kinds()["terminal"], TaskSpec("a", "a", "terminal", ("sh",)), PLACE).terminal


def test_stdin_is_the_file_only_without_a_person() -> None:
    by_stdin = replace(OURS, prompt="stdin")
    assert kind.command(by_stdin, task(), PLACE).stdin == "/run/prompt.md"
    assert kind.command(by_stdin, task(interactive=True), PLACE).stdin == ""
    assert kind.command(OURS, task(), PLACE).stdin == ""


@pytest.mark.parametrize("size", [ARGUMENT_MAX, ARGUMENT_MAX + 1, 1_000_000])
def test_a_prompt_that_no_argument_can_carry_is_read_from_its_file(size: int) -> None:
    for letter in ("x", "\u00e9"):
        prompt = letter * (size // len(letter.encode()))
        word = argv(task(prompt))[-1]
        assert word == (prompt if len(prompt.encode()) <= ARGUMENT_MAX else "Read the file /run/prompt.md and do what it says.")
        assert len(word.encode()) < 128 * 1024


prompts = st.lists(st.text() | st.sampled_from(("-", "--model", "{model}", "{permissions}", "\n", "$(x)", "\\1", "\\g<0>"))).map("".join)


@pytest.mark.parametrize("name", [name for name, made in kinds().items() if made.is_agent])
@given(
    prompts.filter(str.strip),
    st.sampled_from(("", "m-{prompt}")),
    st.sampled_from((None, (), ("A", "{out}"))),
    st.booleans(),
    st.booleans(),
)
def test_a_prompt_is_text_whatever_it_says(
    name: str, prompt: str, model: str, allow: tuple[str, ...] | None, interactive: bool, sandboxed: bool
) -> None:
    """It is one word, or the end of one, or by stdin or file; and the other words do not depend on it."""
    place, keys, made = replace(PLACE, sandboxed=sandboxed), {"model": model, "allow": allow, "interactive": interactive}, kinds()[name]
    words = kind.command(made, task(prompt, **keys), place)
    other = kind.command(made, task("\0PLAIN", **keys), place)  # no kind has this in a word of its own
    assert words.argv == tuple(word.replace("\0PLAIN", prompt) for word in other.argv)
    told = [word for word in other.argv if "\0PLAIN" in word or PLACE.prompt_file in word]
    assert bool(told or other.stdin) == made.takes_prompt(interactive=interactive)
    assert all(word.endswith("\0PLAIN") and (word == "\0PLAIN" or word.startswith("--")) for word in told if "\0PLAIN" in word)
    if "\0PLAIN" in other.argv:
        assert "--" in other.argv[: other.argv.index("\0PLAIN")], "a prompt that begins with - would be an option"


@pytest.mark.parametrize(
    ("name", "how", "words"),
    [
        ("claude", How.RESUME, ("--resume", "old")),
        ("claude", How.FORK, ("--resume", "old", "--fork-session", "--session-id", PLACE.session)),
        ("codex", How.RESUME, ("resume", "old", "-")),
        ("codex", How.FORK, ("fork", "old", "-")),
        ("builtin", How.RESUME, ("--session-id", "old", "--resume", "/run/out/transcript.jsonl")),
        ("builtin", How.FORK, ("--session-id", PLACE.session, "--resume", "/run/out/transcript.jsonl")),
    ],
)
def test_a_conversation_is_continued_by_the_words_of_its_kind(name: str, how: How, words: tuple[str, ...]) -> None:
    place = replace(PLACE, origin=Origin(how, "old", "run/a", 1, "c0ffee"))
    said, fresh = argv(task(), place, kinds()[name]), argv(task(), PLACE, kinds()[name])
    assert " ".join(words) in " ".join(said) and said.count("--session-id") == words.count("--session-id")
    assert "old" not in fresh and fresh.count("--session-id") == (name != "codex")
    assert kinds()[name].chooses_session(how) is (name != "codex" or how is How.RESUME)


def test_a_kind_continues_only_where_its_arguments_have_room() -> None:
    assert not OURS.continues(How.RESUME, interactive=False)
    assert not replace(OURS, resume=("--resume", "{session}")).continues(How.RESUME, interactive=False)
    assert kinds()["codex"].continues(How.RESUME, interactive=False) and not kinds()["codex"].continues(How.RESUME, interactive=True)


def test_a_version_is_found_in_what_programs_say_of_theirs() -> None:
    said = ["2.1.329 (Claude Code)", "codex-cli 0.169.0", "aider 0.86.2", "git version 2.39.5 (Apple Git-154)", "none"]
    assert [version(text) for text in said] == [(2, 1, 329), (0, 169, 0), (0, 86, 2), (2, 39, 5), ()]
    assert version("0.9.10") < version("0.10.0")


def test_settings_are_a_file_where_the_kind_says_so_and_none_without_what_they_speak_of() -> None:
    ours = Kind("k", "k", headless=("go",), settings='{"a": "{gemini_url}"}', settings_file="a/b.json", env={"PLACE": "{settings_dir}"})
    task = TaskSpec(name="t", title="t", kind="k", argv=())
    through = replace(PLACE, variables={"GOOGLE_GEMINI_BASE_URL": "http://g"})
    made = kind.command(ours, task, through)
    assert (made.settings, dict(made.env)) == ('{"a": "http://g"}', {"PLACE": "/run/out/settings"})
    made = kind.command(ours, task, PLACE)
    assert (made.settings, dict(made.env)) == ("", {})
    by_argument = replace(ours, settings_file="", headless=("--settings", "{settings}"))
    assert kind.command(by_argument, task, PLACE).argv == ()
    made = kind.command(by_argument, task, through)
    assert (made.argv, made.settings) == (("--settings", '{"a": "http://g"}'), "")


MEMORY = replace(PLACE, variables={kind.MEMORY_VARIABLE: "/state/memory"}, core="/state/memory/core.md")


GIVEN = {
    "claude": ("--add-dir", "/state/memory"),
    "codex": ("--add-dir", "/state/memory"),
    "gemini": ("--include-directories", "/state/memory"),
    "qwen": ("--include-directories", "/state/memory"),
    "aider": ("--read", "/state/memory/core.md"),
}
ASKS = ("claude", True)
"""With a person at it, it would ask them whether to trust the directory."""


def test_a_session_at_a_terminal_is_not_begun_with_a_question() -> None:
    assert argv(task(interactive=True, kind="claude"), MEMORY, kinds()["claude"]) == argv(
        task(interactive=True, kind="claude"), PLACE, kinds()["claude"]
    )


@pytest.mark.parametrize(
    ("name", "words", "interactive"),
    [(name, words, seated) for name, words in GIVEN.items() for seated in (False, True) if (name, seated) != ASKS],
)
def test_each_command_line_is_given_the_memory_in_its_own_way(name: str, words: tuple[str, str], interactive: bool) -> None:
    ours, spec = kinds()[name], task(interactive=interactive, kind=name)
    said, without = argv(spec, MEMORY, ours), argv(spec, PLACE, ours)
    at = said.index(words[0])
    assert said[at : at + 2] == words and said[:at] + said[at + 2 :] == without
    assert said[at + 2].startswith("-"), "these options take all words up to the next one"


def test_opencode_may_read_it_without_being_asked() -> None:
    env = kind.command(kinds()["opencode"], task(kind="opencode"), MEMORY).env
    assert '"/state/memory/*":"allow"' in env["OPENCODE_PERMISSION"]
    assert "OPENCODE_PERMISSION" not in kind.command(kinds()["opencode"], task(kind="opencode"), PLACE).env
