"""Measured operations over their sizes: models between the sizes, and networks made of them.

`models` says how long an operation takes at a size that was not measured, `networks` adds lists of
operations up, `delay_factor` finds an oscillation of the time over a size.
"""
