"""Examples: what imitation and preference learning study, made from recorded episodes."""
