"""The machine under a run: processes, tools, permissions, environment, secrets."""
