"""`python -m supervisor.gateway --home H --config C`."""

import sys

from supervisor.gateway.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
