"""Runs the command line as `python -m orchestrator`."""

import sys

from orchestrator.cli import main

sys.exit(main())
