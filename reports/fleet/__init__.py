"""Compares the GPUs of one model by what each of them reached in the same benchmark."""
