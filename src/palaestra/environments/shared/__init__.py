"""Shared parts that several families of environments use."""
