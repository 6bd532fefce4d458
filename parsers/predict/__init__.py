"""Predicts how fast an engine serves a model, from its configuration and from recorded runs.

`operators` lists what a step computes, `costs` says how long an operator takes and how sure that
is, `trace` reads the costs of a recorded engine, `serving` composes steps into points.
"""
