"""Many machines, one run: the sessions of a run are run by workers on a Ray cluster."""
