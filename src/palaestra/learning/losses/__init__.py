"""Losses per token, how tokens add up, and weights for tokens that another policy sampled."""
