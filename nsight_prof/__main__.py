"""Runs the command line as `python -m nsight_prof`."""

import sys

from nsight_prof.orchestrator.start import main

sys.exit(main())
