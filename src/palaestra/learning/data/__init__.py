"""Data: trajectories, rows, rewards, filters, and examples to imitate."""
