"""Timeline and tree of a traced program, within its page and as still pictures."""
