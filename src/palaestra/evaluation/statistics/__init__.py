"""Statistics: rates, differences, intervals, costs and ratings."""
