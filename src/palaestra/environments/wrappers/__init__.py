"""Wrappers: environments changed by knobs in the query of their id."""
