"""`python -m opweave`."""

from __future__ import annotations

import sys

from opweave.cli import main

if __name__ == "__main__":
    sys.exit(main())
