"""What is printed: sentences, progress, tables, suggestions."""
