"""The settings that keep git from running what a repository or an agent configured. Pure tables and functions; `git.py` applies them.

Three layers, each in git's command scope, which beats every file:

1. `HARDENED` switches off the keys that always have the same name (hooks, fsmonitor, signing, transports ...).
2. `overrides` switches off the keys that carry a name somebody chose (`filter.<name>.clean`): their names come from
   `git config --list`, which executes nothing.
3. `ENVIRONMENT` closes the doors that are variables, and allows no transport at all: no verb here talks to a network.

They travel as `GIT_CONFIG_COUNT`/`KEY_n`/`VALUE_n`, not as `-c`: git cuts `-c filter.a=b.clean=` at the first `=`, so a
filter called `a=b` would have stayed armed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

MINIMUM = (2, 38)
"""The first git with `merge-tree --write-tree`."""

HARDENED: Mapping[str, str] = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "core.editor": "false",
    "sequence.editor": "false",
    "core.sshCommand": "false",
    "core.gitProxy": "false",
    "core.askPass": "",
    "core.alternateRefsCommand": "",
    "uploadpack.packObjectsHook": "",
    "credential.helper": "",
    "protocol.allow": "never",
    "protocol.ext.allow": "never",
    "protocol.file.allow": "never",
    "gpg.program": "false",
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "log.showSignature": "false",
    "merge.verifySignatures": "false",
    "merge.autoStash": "false",
    "merge.default": "text",  # else it names a driver for every file, which counts as a conflict
    "merge.renames": "true",  # the same two commits merge to the same tree, whatever is configured
    "merge.directoryRenames": "conflict",
    "merge.renameLimit": "7000",
    "submodule.recurse": "false",
    "status.submoduleSummary": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "rerere.enabled": "false",
    "core.untrackedCache": "false",  # a cache an agent wrote could hide its files from a rescue
    "core.trustctime": "true",  # else a file of the same size and time as before is not read
    "core.checkStat": "default",
    "core.splitIndex": "false",  # our temporary index must be one whole file
    "core.bigFileThreshold": "16m",  # larger files are binary to a diff: nobody reads them as text, and it would be held in memory
    "core.fsync": "committed,reference",  # a result that the ledger calls safe must survive a power cut, as the ledger does
    "core.safecrlf": "false",  # `true` would make a rescue fail on mixed line ends
    "core.quotePath": "true",
    "color.ui": "false",
    "i18n.commitEncoding": "UTF-8",
    "branch.autoSetupMerge": "false",
    "worktree.guessRemote": "false",
    "worktree.useRelativePaths": "false",  # `open_env` compares the links with the absolute form
}

IDENTITY: Mapping[str, str] = {
    "GIT_AUTHOR_NAME": "nightcrew",
    "GIT_AUTHOR_EMAIL": "nightcrew@localhost",
    "GIT_COMMITTER_NAME": "nightcrew",
    "GIT_COMMITTER_EMAIL": "nightcrew@localhost",
}
"""Of commits that we make."""

ENVIRONMENT: Mapping[str, str] = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_ALLOW_PROTOCOL": "",  # set but empty: no transport is allowed, a partial clone's lazy fetch included
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",  # a replaced object could make lost commits look merged
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "GIT_SSH_COMMAND": "false",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
    "GIT_PAGER": "cat",
    "PAGER": "cat",
    "EDITOR": "false",
    "VISUAL": "false",
}

SAFE_PERSONAL = frozenset({"core.autocrlf", "core.eol", "core.excludesfile", "core.attributesfile"})
"""The only keys of the person's own git configuration that our verbs see: data that says how files are stored or ignored."""

_NAMED: Mapping[tuple[str, str], str] = {
    ("filter", "clean"): "",
    ("filter", "smudge"): "",
    ("filter", "process"): "",
    ("filter", "required"): "false",
    ("branch", "mergeoptions"): "",  # options of `git merge`, such as a strategy that keeps one side
    ("merge", "driver"): "false",  # a file with a driver of its own then counts as a conflict
    ("diff", "command"): "false",
    ("diff", "textconv"): "false",
    ("gpg", "program"): "false",
    ("gpg", "defaultkeycommand"): "false",
    ("hook", "command"): "true",
    ("hook", "enabled"): "false",
    ("credential", "helper"): "",
    ("remote", "vcs"): "",  # `uploadpack` and `receivepack` need a transport, and a second value for them is an error
    ("submodule", "update"): "none",
    ("tar", "command"): "false",
    ("trailer", "command"): "false",
    ("trailer", "cmd"): "false",
    ("browser", "cmd"): "false",
    ("man", "cmd"): "false",
    ("difftool", "cmd"): "false",
    ("mergetool", "cmd"): "false",
}
_WHOLE_SECTIONS: Mapping[str, str] = {"alias": "", "pager": "false"}


def overrides(names: Iterable[str]) -> dict[str, str]:
    """For each key in `names` whose value git might run: the same key with a value that runs nothing."""
    return {name: value for name in names if (value := _harmless(name)) is not None}


def _harmless(name: str) -> str | None:
    section, _, rest = name.partition(".")
    section = section.lower()
    if section in _WHOLE_SECTIONS:
        return _WHOLE_SECTIONS[section]
    if "." not in rest:
        return None
    return _NAMED.get((section, rest.rpartition(".")[2].lower()))


def has_includes(names: Iterable[str]) -> bool:
    """Whether a configuration pulls in other files, which may appear or change without any sign in the file itself."""
    return any(name.partition(".")[0].lower() in {"include", "includeif"} for name in names)


def as_environment(pairs: Mapping[str, str]) -> dict[str, str]:
    """`pairs` in the form that puts them into git's command scope."""
    shape = {"GIT_CONFIG_COUNT": str(len(pairs))}
    for index, (key, value) in enumerate(pairs.items()):
        shape[f"GIT_CONFIG_KEY_{index}"] = key
        shape[f"GIT_CONFIG_VALUE_{index}"] = value
    return shape


def personal_entries(listing: str) -> list[str]:
    """Return the entries of `git config --list -z` output whose key is in `SAFE_PERSONAL`."""
    return [entry for entry in listing.split("\0") if entry.partition("\n")[0] in SAFE_PERSONAL]


def config_text(entries: Iterable[str]) -> str:
    """A git configuration file of entries as `git config --list -z` gives them: a key, a line break, its value; a key alone is true."""
    lines = []
    for entry in entries:
        key, has_value, value = entry.partition("\n")
        section, _, rest = key.partition(".")
        within, _, name = rest.rpartition(".")
        head = f'[{section} "{_escaped(within)}"]' if within else f"[{section}]"
        lines.append(f'{head}\n\t{name} = "{_escaped(value)}"\n' if has_value else f"{head}\n\t{name}\n")
    return "".join(lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
