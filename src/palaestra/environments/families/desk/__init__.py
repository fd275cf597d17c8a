"""Service desks: written policies, users who are programs or models, twins."""
