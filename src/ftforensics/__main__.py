"""`python -m ftforensics` is the command `ftforensics`."""

import sys

from ftforensics.cli import main

sys.exit(main())
