"""Running evaluations: from a suite or matrix to finished cells."""
