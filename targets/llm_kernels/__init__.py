"""The operations that LLM inference is made of, measured one by one."""
