"""Tasks composed of goals, whose verifiers are derived from reference solutions."""
