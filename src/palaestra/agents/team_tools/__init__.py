"""Members of teams that are no models: they run programs, or look things up."""
