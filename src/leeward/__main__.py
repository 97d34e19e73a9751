"""`python -m leeward` is the command `leeward`."""

import sys

from leeward.cli import main

sys.exit(main())
