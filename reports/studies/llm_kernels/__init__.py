"""The operations of a transformer: what each reaches of its roof, and what makes it faster."""
