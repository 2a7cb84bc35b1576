"""Which variables reach an agent: an allow-list, since everything else (loader, language, git, tmux and cloud variables) can change
what runs or leak a secret."""

from __future__ import annotations

from collections.abc import Collection, Mapping

ALLOWED = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "COLORTERM", "NO_COLOR"})
"""TERM is the pane's own and TMPDIR is private to the attempt, so neither is here."""


def allowed(environ: Mapping[str, str], extra: Collection[str] = ()) -> dict[str, str]:
    """The part of `environ` that agents may see: ALLOWED, every LC_*, and the names a person listed in `pass_env`."""
    return {name: text for name, text in environ.items() if name in ALLOWED or name.startswith("LC_") or name in extra}


UNATTENDED = {"GIT_TERMINAL_PROMPT": "0", "SSH_ASKPASS": "/bin/false", "SSH_ASKPASS_REQUIRE": "force"}
"""Variables that make git and ssh fail instead of asking for a password or a host's key: an unattended task has no person to answer."""


def for_agent(
    base: Mapping[str, str], params: Mapping[str, str], own: Mapping[str, str], *, attended: bool = False
) -> tuple[tuple[str, str], ...]:
    """Return the whole environment of one attempt, sorted: `own` (NIGHTCREW_*, TMPDIR) over the task's `params` over `base` over
    UNATTENDED, which an `attended` one, that has a terminal, does not get."""
    return tuple(sorted({**({} if attended else UNATTENDED), **base, **params, **own}.items()))
