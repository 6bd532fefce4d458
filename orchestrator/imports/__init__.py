"""Imports what nsys and ncu wrote elsewhere: files, folders, ranks of a job."""
