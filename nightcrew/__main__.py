"""`python -m nightcrew` is `nightcrew`."""

from __future__ import annotations

from nightcrew import main

if __name__ == "__main__":
    main()
