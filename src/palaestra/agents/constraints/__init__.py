"""Constraints: agents whose actions satisfy a formula of temporal logic."""
