"""What the handlers are given to act with. Each runs in a thread, and raises NightcrewError."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from supervisor.features.access.rules import Token
from supervisor.features.api.models import TaskRequest
from supervisor.store.queries import TaskView


@dataclass(frozen=True, slots=True)
class Order:
    """A task to be handed over."""

    token: Token
    root: str
    """Of its repository, as the ledger has it."""
    key: str
    """Idempotency key; the same twice is one task."""
    digest: str
    """Of the request."""
    request: TaskRequest


class Doors(Protocol):
    """Does what a program asks, as the verb of the same name."""

    def submit(self, order: Order) -> str:
        """Hand it over, after the checks of a plan; the run, once it is on disk."""

    def cancel(self, task: str) -> bool:
        """Whether it was asked to end; False: it had ended."""

    def result(self, view: TaskView, *, patch: bool) -> dict[str, Any]:
        """`base tip stat patch`, of what there is."""

    def capacity(self) -> dict[str, Any]:
        """As `nightcrew capacity --json`."""

    def used(self, token: str) -> None:
        """Note that a token was used just now."""
