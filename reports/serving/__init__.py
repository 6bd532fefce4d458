"""What a run knows of its serving engine, and the FLOPs and bytes that the engine's model needs."""
