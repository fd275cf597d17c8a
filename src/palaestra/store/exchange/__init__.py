"""Episodes in the formats of other programs, written and read."""
