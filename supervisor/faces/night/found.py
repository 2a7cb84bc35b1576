"""What the command found beside the books, in git and in the records of attempts: handed in, because nothing here starts a git. By task
id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DIFF_BYTES = 24 * 1024
"""Of one diff on a page; the command beside it shows all."""
DIFFS_BYTES = 480 * 1024
"""Of all of them."""


@dataclass(frozen=True, slots=True)
class Diff:
    """What a task changed by now."""

    text: str
    """As git prints it; empty when there is none."""
    note: str = ""
    """Why it is not all of it, or not there."""


@dataclass(frozen=True, slots=True)
class Found:
    """As the repository and the records were when they were looked at."""

    on: str = ""
    """What is checked out, which every branch would be merged into; empty: nobody looked."""
    gone: frozenset[str] = frozenset()
    """Tasks whose branch was removed."""
    taken: frozenset[str] = frozenset()
    """Tasks whose work the checkout has."""
    with_base: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Files in which a task's branch would conflict with the checkout."""
    with_others: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """The same with each other task's branch."""
    not_tried: int = 0
    """Pairs of branches that were too many to try."""
    diffs: Mapping[str, Diff] = field(default_factory=dict)
    """Of the tasks that need a person, and of those that did not end well."""
    printed: Mapping[str, str] = field(default_factory=dict)
    """The last lines of what those printed that did not end well, or of what their gate did."""
    trouble: str = ""
    """Why git could not say it."""


NOBODY_LOOKED = Found()
