"""What becomes of a result: looking at it and merging it. Runs in the process of the command, in the person's own checkout."""

from __future__ import annotations
