"""Training data that is generated and verified: blueprints, worlds, tasks, dialogues, rows."""
