"""Only what is on the allow-list reaches an agent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel.kind import ALLOWED, allowed, for_agent

POISON = """
    LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT PYTHONPATH PYTHONSTARTUP PYTHONHOME VIRTUAL_ENV NODE_OPTIONS RUBYOPT PERL5OPT BASH_ENV ENV IFS
    PROMPT_COMMAND GIT_DIR GIT_WORK_TREE GIT_SSH_COMMAND GIT_CONFIG_COUNT GIT_EXTERNAL_DIFF GIT_PAGER PAGER EDITOR TMUX TMUX_PANE
    TMUX_TMPDIR AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN GOOGLE_APPLICATION_CREDENTIALS AZURE_CLIENT_SECRET ANTHROPIC_API_KEY
    OPENAI_API_KEY GITHUB_TOKEN SSH_AUTH_SOCK SSH_ASKPASS HTTP_PROXY https_proxy DISPLAY XDG_RUNTIME_DIR TMPDIR TERM NIGHTCREW_HOME
    NIGHTCREW_TAG NIGHTCREW_DIE_AT path Path PATH2 XPATH LC
"""
HARMLESS = {name: f"value of {name}" for name in [*ALLOWED, "LC_ALL", "LC_TIME"]}


def test_a_poisoned_environment_arrives_clean() -> None:
    assert allowed({**dict.fromkeys(POISON.split(), "poison"), **HARMLESS}) == HARMLESS


def test_what_a_person_lists_passes_too() -> None:
    environ = {"SSH_AUTH_SOCK": "/s", "SSH_AUTH_SOCK_2": "/t", "PATH": "/bin"}
    assert allowed(environ, ("SSH_AUTH_SOCK", "ABSENT")) == {"SSH_AUTH_SOCK": "/s", "PATH": "/bin"}


@given(st.dictionaries(st.text(), st.text()))
def test_nothing_else_ever_passes(environ: dict[str, str]) -> None:
    assert all(name in ALLOWED or name.startswith("LC_") for name in allowed(environ))


def test_git_and_ssh_ask_nobody_where_nobody_is_unless_the_task_says_how() -> None:
    alone = dict(for_agent({"PATH": "/bin"}, {"SSH_ASKPASS": "/my/askpass"}, {}))
    assert alone == {"PATH": "/bin", "GIT_TERMINAL_PROMPT": "0", "SSH_ASKPASS": "/my/askpass", "SSH_ASKPASS_REQUIRE": "force"}
    assert dict(for_agent({"PATH": "/bin"}, {}, {}, attended=True)) == {"PATH": "/bin"}


def test_our_own_variables_win_over_the_tasks_and_those_over_the_shells() -> None:
    made = for_agent(
        {"PATH": "/bin", "A": "shell", "B": "shell"},
        {"A": "task", "TMPDIR": "task"},
        {"TMPDIR": "own", "NIGHTCREW_TASK": "r/a"},
        attended=True,
    )
    assert made == (("A", "task"), ("B", "shell"), ("NIGHTCREW_TASK", "r/a"), ("PATH", "/bin"), ("TMPDIR", "own"))
