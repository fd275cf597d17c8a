"""Families: one package for each adapter of environments."""
