"""Real command lines with their copy of a person's home: they see the login, continue a conversation, and change nothing there."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import pytest

from supervisor.sandbox.executors import Executor
from supervisor.sandbox.policy import Tier
from tests.gateway.clients.kit import CLIENTS
from tests.gateway.simulator import Simulator
from tests.host.sandbox.kit import House, house, need

BIN = CLIENTS / "bin"
LOGIN = {"accessToken": "sk-ant-oat01-x", "refreshToken": "sk-ant-ort01-x", "expiresAt": 4102444800000, "scopes": ["user:inference"]}
LOGINS = {
    ".claude/.credentials.json": {"claudeAiOauth": {**LOGIN, "subscriptionType": "max"}},
    ".codex/auth.json": {"OPENAI_API_KEY": "sk-test-abcdefghijklmnop"},
    ".local/share/opencode/auth.json": {"anthropic": {"type": "api", "key": "k"}},
}
PROVIDER = (
    "model_provider=n", "model_providers.n.name=n", "model_providers.n.base_url={url}/v1", "model_providers.n.env_key=OPENAI_API_KEY",
    "model_providers.n.wire_api=responses",
)  # fmt: skip
CODEX = ("codex", "exec", "--json", "--dangerously-bypass-approvals-and-sandbox", "--model", "gpt-6.1-sol")
CLAUDE = ("claude", "-p", "--model", "claude-opus-4-8", "--output-format", "json")


@pytest.fixture
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with house(tmp_path_factory.mktemp("h")) as made:
        for name, shape in LOGINS.items():
            (made.user / name).write_text(json.dumps(shape))
        yield made


def in_home(crew: House) -> dict[str, bytes]:
    """Return what the person has."""
    found = (path for path in crew.user.rglob("*") if path.is_file())
    return {str(path.relative_to(crew.user)): path.read_bytes() for path in found}


def run(crew: House, prefix: tuple[str, ...], *command: str, **env: str) -> str:
    """A command line in the sandbox, which must succeed; its output."""
    if not (BIN / command[0]).exists():
        pytest.skip(f"{command[0]} is not installed in {CLIENTS}: run make clients")
    own = {**crew.environment, "PATH": f"{BIN}:{os.environ['PATH']}", "DISABLE_AUTOUPDATER": "1", "TERM": "dumb", **env}
    argv = [*prefix, *command]
    done = subprocess.run(
        argv, cwd=crew.worktree, env=own, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("claude auth status", '"storedClaudeAiLogin": true'),
        ("codex login status", "API key configured"),
        pytest.param("opencode auth list", "1 credentials", marks=pytest.mark.soak),
    ],
)
def test_it_sees_the_persons_login(crew: House, command: str, said: str) -> None:
    need(Executor.NAMESPACES, Tier.FILES)
    before = in_home(crew)
    assert said in run(crew, crew.prefix(Executor.NAMESPACES, crew.policy(Tier.FILES)), *command.split())
    assert in_home(crew) == before


@pytest.mark.parametrize("kind", ["claude", pytest.param("codex", marks=pytest.mark.soak)])
def test_it_continues_a_conversation_in_its_copy(crew: House, kind: str) -> None:
    need(Executor.NAMESPACES, Tier.FILES)
    before, prefix = in_home(crew), crew.prefix(Executor.NAMESPACES, crew.policy(Tier.FILES))
    with Simulator() as sim:
        env = {"ANTHROPIC_BASE_URL": sim.url, "ANTHROPIC_API_KEY": "none", "OPENAI_API_KEY": "none"}
        provider = [word for line in PROVIDER for word in ("-c", line.format(url=sim.url))]
        first = [*CLAUDE, "begin"] if kind == "claude" else [*CODEX, *provider, "begin"]
        said = run(crew, prefix, *first, **env)
        lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        session = next(line[key] for line in lines for key in ("session_id", "thread_id") if key in line)
        again = [*CLAUDE, "--resume", session, "go on"] if kind == "claude" else [*CODEX, *provider, "resume", session, "go on"]
        run(crew, prefix, *again, **env)
    own = crew.attempt / "home" / str(crew.user.resolve()).lstrip("/")
    assert [path for path in own.rglob(f"*{session}.jsonl") if path.is_file()], "its transcript is in its copy"
    assert in_home(crew) == before
