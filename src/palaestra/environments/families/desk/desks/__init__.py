"""The desks: blueprints, verbs, policies and kinds of request."""
