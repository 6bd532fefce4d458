"""Times lines of Python in programs of others: the interpreter itself imports what lies here."""
