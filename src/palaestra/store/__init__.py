"""The durable run store: a run folder with its database and its checkpoints."""
