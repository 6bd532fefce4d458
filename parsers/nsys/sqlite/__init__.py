"""Reads the SQLite export of nsys: its pages, tables, codes and times."""
