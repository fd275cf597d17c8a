"""Tasks sampled from a graph of the pages of local sites."""
