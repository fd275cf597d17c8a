"""Gestures as text and as tools, in other systems' dialects, and their targets located."""
