"""Apps: worlds of services compiled from blueprints, and tasks whose verifiers are derived."""
