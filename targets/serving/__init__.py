"""vLLM, measured: an engine in this process or a server, offline and under load."""
