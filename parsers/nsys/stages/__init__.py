"""Stages of a program: what work and idle time belong to each."""
