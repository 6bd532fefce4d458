"""Recipes: one YAML file, one question (data only)."""
