"""Scripted models: replies known beforehand, for tests and baselines."""
