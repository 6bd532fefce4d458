"""A Hugging Face transformers model, run directly: its stages, its inputs, what it predicts."""
