"""Plots: view model in, matplotlib figure out."""

import logging

# Without a home it says in three lines that its cache is temporary, and that fonts take a moment.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
