"""`python -m palaestra` is the command `palaestra`."""

import sys

from palaestra.cli.main import main

sys.exit(main())
