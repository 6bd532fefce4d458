"""Reads recipes: files, the schema, defaults and the errors of users."""
