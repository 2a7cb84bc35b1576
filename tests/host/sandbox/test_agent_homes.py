"""A confined agent's copy of what command lines keep in the home: what is in it, and how renewed logins come back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from supervisor.sandbox import homes as agent_homes
from supervisor.sandbox.executors import Executor
from supervisor.sandbox.homes import Homes, SharedLogins
from supervisor.sandbox.policy import Tier
from tests.host.sandbox.kit import House, need

NOW = 1_800_000_000_000
CLAUDE = ".claude/.credentials.json"


def claude(token: str, expires: int) -> str:
    return json.dumps({"claudeAiOauth": {"accessToken": token, "refreshToken": f"r-{token}", "expiresAt": expires, "scopes": ["user"]}})


LOGINS: dict[str, tuple[str, str]] = {
    CLAUDE: (claude("old", NOW), claude("new", NOW + 1)),
    ".codex/auth.json": (
        '{"tokens": {"access_token": "old", "refresh_token": "r1"}, "last_refresh": "2026-01-01T00:00:00Z"}',
        '{"tokens": {"access_token": "new", "refresh_token": "r2"}, "last_refresh": "2026-01-02T00:00:00Z"}',
    ),
    ".gemini/oauth_creds.json": (
        '{"access_token": "old", "refresh_token": "r1", "expiry_date": 1}',
        '{"access_token": "new", "refresh_token": "r1", "expiry_date": 2}',
    ),
    ".qwen/oauth_creds.json": (
        '{"access_token": "old", "refresh_token": "r1", "expiry_date": 1}',
        '{"access_token": "new", "refresh_token": "r2", "expiry_date": 2}',
    ),
    ".local/share/opencode/auth.json": (
        '{"anthropic": {"type": "oauth", "access": "old", "refresh": "r1", "expires": 1}}',
        '{"anthropic": {"type": "oauth", "access": "new", "refresh": "r2", "expires": 2}}',
    ),
}
"""By file: before and after a renewal."""


class Person:
    """A home, and attempts with copies of it."""

    def __init__(self, top: Path) -> None:
        self.top, self.home = top, top / "home"
        self.home.mkdir()

    def has(self, name: str, text: str = "") -> Path:
        file = self.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def attempt(self, name: str, *, gives_back: bool = True, env: dict[str, str] | None = None, closed: tuple[str, ...] = ()) -> Path:
        place = self.top / name
        place.mkdir(exist_ok=True)
        agent_homes.prepare(place, agent_homes.find(self.home, env or {}, closed), gives_back=gives_back)
        return place

    def own(self, attempt: Path, name: str) -> Path:
        return attempt / "home" / str(self.home.resolve()).lstrip("/") / name


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def homes(attempt: Path) -> Homes:
    found = agent_homes.of(attempt)
    assert found is not None
    return found


def test_settings_are_copied_what_is_large_is_shown_and_transcripts_stay_away(person: Person) -> None:
    person.has(".claude/settings.json", "{}").chmod(0o640)
    person.has(".claude/hooks/h.sh", "#!/bin/sh\n").chmod(0o755)
    person.has(".claude/projects/-repo/old.jsonl", "{}\n")
    person.has(".claude/state.sqlite", "x")
    for number in range(agent_homes.COPIED_ENTRIES + 1):
        person.has(f".claude/plugins/cache/{number}")
    person.has(".claude/binary", "x" * (agent_homes.COPIED_BYTES + 1))
    dotfiles = person.top / "dotfiles"
    dotfiles.mkdir()
    (dotfiles / "CLAUDE.md").write_text("mine")
    (person.home / ".claude" / "CLAUDE.md").symlink_to(dotfiles / "CLAUDE.md")
    os.mkfifo(person.home / ".claude" / "pipe")
    attempt = person.attempt("a")
    own = person.own(attempt, ".claude")
    assert sorted(os.listdir(own)) == ["CLAUDE.md", "binary", "hooks", "plugins", "settings.json"]
    assert (own / "CLAUDE.md").is_symlink() and (own / "CLAUDE.md").read_text() == "mine"
    assert os.access(own / "hooks" / "h.sh", os.X_OK) and not os.access(own / "settings.json", os.X_OK)
    real = str((person.home / ".claude").resolve())
    assert homes(attempt).shown == (f"{real}/binary", f"{real}/plugins")
    assert os.listdir(own / "plugins") == [] and (own / "binary").read_text() == ""


def test_a_second_call_changes_nothing_and_an_interrupted_one_is_begun_anew(person: Person) -> None:
    person.has(".codex/config.toml", "a = 1")
    attempt = person.attempt("a")
    person.own(attempt, ".codex/config.toml").write_text("the agent's")
    person.attempt("a")
    assert person.own(attempt, ".codex/config.toml").read_text() == "the agent's"
    (attempt / agent_homes.MANIFEST).unlink()
    person.own(attempt, ".codex/left").touch()
    person.attempt("a")
    assert person.own(attempt, ".codex/config.toml").read_text() == "a = 1"
    assert not person.own(attempt, ".codex/left").exists()


def test_where_the_person_moved_it_and_where_a_variable_must_not_lead(person: Person) -> None:
    moved, state = person.top / "moved", person.top / "state"
    for place in (moved, state):
        place.mkdir()
        (place / "secret").write_text("x")
    person.has(".codex/config.toml")
    said = {"CODEX_HOME": str(moved), "CLAUDE_CONFIG_DIR": str(state), "QWEN_HOME": str(person.home), "XDG_DATA_HOME": "/"}
    found = agent_homes.find(person.home, said, (str(state.resolve()),))
    assert found == {str(moved.resolve()): ".codex", str((person.home / ".codex").resolve()): ".codex"}
    for harmful in (str(person.top), "/", str(state / "below")):
        assert agent_homes.find(person.home, {"CODEX_HOME": harmful}, (str(state.resolve()),)) == {
            str((person.home / ".codex").resolve()): ".codex"
        }


def renew(file: Path, text: str, how: str) -> None:
    """As command lines do: over the file, or by another one that is renamed."""
    if how == "in place":
        file.write_text(text)
    else:
        file.with_name("draft").write_text(text)
        file.with_name("draft").rename(file)


@pytest.mark.parametrize("how", ["in place", "renamed"])
@pytest.mark.parametrize("name", LOGINS)
def test_a_renewal_reaches_the_person_and_every_agent(person: Person, name: str, how: str) -> None:
    before, after = LOGINS[name]
    real = person.has(name, before)
    real.chmod(0o600)
    attempts = [person.attempt(each) for each in ("a", "b")]
    shared = SharedLogins()
    shared.share(attempts, NOW)
    renew(person.own(attempts[0], name), after, how)
    shared.share(attempts, NOW)
    for file in (real, *(person.own(attempt, name) for attempt in attempts)):
        assert json.loads(file.read_text()) == json.loads(after), file
    for file in (real, person.own(attempts[1], name)):
        assert file.stat().st_mode & 0o777 == 0o600


def test_the_persons_own_renewal_reaches_every_agent(person: Person) -> None:
    real = person.has(CLAUDE, claude("old", NOW))
    attempts, shared = [person.attempt("a"), person.attempt("b", gives_back=False)], SharedLogins()
    shared.share(attempts, NOW)
    renew(real, claude("new", NOW + 1), "renamed")
    shared.share(attempts, NOW)
    assert all(person.own(attempt, CLAUDE).read_text() == claude("new", NOW + 1) for attempt in attempts)


def test_a_renewal_outlives_a_restart_and_the_end_of_its_agent(person: Person) -> None:
    real = person.has(CLAUDE, claude("old", NOW))
    attempt = person.attempt("a")
    renew(person.own(attempt, CLAUDE), claude("new", NOW + 1), "in place")
    SharedLogins().share([attempt], NOW)  # by a supervisor that never saw the old one
    assert real.read_text() == claude("new", NOW + 1)
    renew(person.own(attempt, CLAUDE), claude("last", NOW + 2), "in place")
    agent_homes.take_all_back(attempt, NOW)
    assert real.read_text() == claude("last", NOW + 2)


def test_a_login_behind_a_link_is_shared_and_the_link_stays(person: Person) -> None:
    dotfiles = person.top / "dotfiles"
    dotfiles.mkdir()
    (dotfiles / "auth.json").write_text(LOGINS[".codex/auth.json"][0])
    (person.home / ".codex").mkdir()
    (person.home / ".codex" / "auth.json").symlink_to(dotfiles / "auth.json")
    attempt = person.attempt("a")
    assert not person.own(attempt, ".codex/auth.json").is_symlink()
    renew(person.own(attempt, ".codex/auth.json"), LOGINS[".codex/auth.json"][1], "renamed")
    agent_homes.take_all_back(attempt, NOW)
    assert (person.home / ".codex" / "auth.json").is_symlink()
    assert json.loads((dotfiles / "auth.json").read_text()) == json.loads(LOGINS[".codex/auth.json"][1])


def _as_it_is(file: Path, _: Path) -> None:
    renew(file, claude("new", NOW + 1), "renamed")


def _forged(file: Path, _: Path) -> None:
    shape: dict[str, Any] = json.loads(claude("new", NOW))
    renew(file, json.dumps({**shape, "hooks": {"SessionStart": "sh"}}), "renamed")


def _linked(file: Path, other: Path) -> None:
    file.unlink()
    file.symlink_to(other)


def _hard_linked(file: Path, other: Path) -> None:
    file.unlink()
    os.link(other, file)


def _above_linked(file: Path, other: Path) -> None:
    file.parent.rename(file.parent.with_name("old"))
    file.parent.symlink_to(other.parent)


def _pipe(file: Path, _: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _folder(file: Path, _: Path) -> None:
    file.unlink()
    file.mkdir()


def _gone(file: Path, _: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("plant", [_forged, _linked, _hard_linked, _above_linked, _pipe, _folder, _gone])
def test_what_an_agent_plants_in_place_of_a_login_changes_nothing(person: Person, plant: Any) -> None:
    real = person.has(CLAUDE, claude("old", NOW))
    other = person.top / "elsewhere" / ".credentials.json"
    other.parent.mkdir()
    other.write_text(claude("stolen", NOW + 5))
    attempt, shared = person.attempt("a"), SharedLogins()
    shared.share([attempt], NOW)
    plant(person.own(attempt, CLAUDE), other)
    shared.share([attempt], NOW)
    renew(real, claude("old", NOW), "renamed")  # so that it is given again
    shared.share([attempt], NOW)
    agent_homes.take_all_back(attempt, NOW)
    assert real.read_text() == claude("old", NOW)
    assert other.read_text() == claude("stolen", NOW + 5)


def test_an_agent_that_reaches_no_provider_renews_nothing(person: Person) -> None:
    real = person.has(CLAUDE, claude("old", NOW))
    attempt, shared = person.attempt("a", gives_back=False), SharedLogins()
    _as_it_is(person.own(attempt, CLAUDE), real)
    shared.share([attempt], NOW)
    agent_homes.take_all_back(attempt, NOW)
    assert real.read_text() == claude("old", NOW)


def test_a_home_that_cannot_be_written_is_told_once_and_keeps_nobody_waiting(person: Person) -> None:
    real, other = person.has(CLAUDE, claude("old", NOW)), person.has(".qwen/oauth_creds.json", LOGINS[".qwen/oauth_creds.json"][0])
    attempt, shared = person.attempt("a"), SharedLogins()
    shared.share([attempt], NOW)
    real.unlink()
    real.mkdir()
    _as_it_is(person.own(attempt, CLAUDE), real)
    renew(person.own(attempt, ".qwen/oauth_creds.json"), LOGINS[".qwen/oauth_creds.json"][1], "renamed")
    shared.share([attempt], NOW)
    assert json.loads(other.read_text())["access_token"] == "new"


def test_what_was_copied_goes_and_what_an_agent_made_itself_stays(person: Person) -> None:
    person.has(CLAUDE, claude("old", NOW))
    person.has(".claude/settings.json", "{}")
    person.has(".claude.json", "{}")
    kept = person.has("kept", "x")
    attempt = person.attempt("a")
    own = person.own(attempt, ".claude")
    (own / "projects" / "-r").mkdir(parents=True)
    (own / "projects" / "-r" / "s.jsonl").write_text("said")
    (own / "link").symlink_to(person.home)
    (own / "deep").mkdir()
    (own / "deep" / "link").symlink_to(kept)
    for _ in range(2):
        agent_homes.forget(attempt)
        assert os.listdir(own) == ["projects"]
    assert (own / "projects" / "-r" / "s.jsonl").read_text() == "said"
    assert not person.own(attempt, ".claude.json").exists()
    assert (kept.read_text(), (person.home / ".claude.json").read_text()) == ("x", "{}")
    assert homes(attempt).own(f"{person.home.resolve()}/.claude/projects") != ""
    agent_homes.forget(person.top)  # has none


def test_a_home_of_a_command_line_may_be_a_repository_and_not_lie_in_one(person: Person) -> None:
    real = str(person.has(".claude/.git/config", "x").resolve().parent.parent)
    assert agent_homes.find(person.home, {}, (), f"{real}/.git") == {real: ".claude"}
    inside = {"CODEX_HOME": f"{real}/.git", "CLAUDE_CONFIG_DIR": f"{real}/.git/x"}
    assert agent_homes.find(person.home, inside, (), f"{real}/.git") == {real: ".claude"}
    assert os.listdir(person.own(person.attempt("a"), ".claude")) == [], "its repository is the attempt's own"


@pytest.mark.in_turns
@pytest.mark.parametrize("tier", [Tier.FILES, Tier.OFFLINE], ids=str)
@pytest.mark.parametrize("executor", Executor, ids=str)
def test_an_agent_reads_the_persons_settings_and_writes_its_own(crew: House, executor: Executor, tier: Tier) -> None:
    need(executor, tier)
    large = crew.user / ".claude" / "plugins"
    for number in range(agent_homes.COPIED_ENTRIES + 1):
        (large / str(number)).mkdir(parents=True)
    (large / "p").write_text("plug-in")
    (crew.user / ".claude" / "CLAUDE.md").write_text("the person's")
    prefix = crew.prefix(executor, crew.policy(tier))
    script = """
        cd "$HOME/.claude"; cat CLAUDE.md plugins/p; echo own > settings.json; mkdir -p projects/x; echo talk > projects/x/t.jsonl
        ! touch plugins/q 2>/dev/null; ! mv plugins gone 2>/dev/null; echo '{"mcpServers": 1}' > ../.claude.json; cat settings.json
    """
    done = crew.run(prefix, "sh", "-ec", script)
    assert (done.stdout, done.returncode) == ("the person'splug-inown\n", 0), done.stderr
    assert (crew.user / ".claude" / "settings.json").read_text() == (crew.user / ".claude.json").read_text() == "{}"
    assert not (crew.user / ".claude" / "projects").exists()
    again = crew.run(prefix, "cat", f"{crew.user}/.claude/projects/x/t.jsonl")
    assert again.stdout == "talk\n", "what it left itself, it finds"
