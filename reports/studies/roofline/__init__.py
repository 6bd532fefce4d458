"""What this GPU can do, and what a program loses that uses it badly."""
