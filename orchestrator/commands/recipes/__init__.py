"""The commands about recipes: list, show, check, start one, and what they need."""
