"""Members of teams that are no models: they run, look up or watch, and act in no environment."""
