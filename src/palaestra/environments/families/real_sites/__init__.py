"""Real applications as sites, and tasks whose verdicts are rows of their final state."""
