"""Two sites over real data of the world: an encyclopedia of countries, and a map of towns."""
