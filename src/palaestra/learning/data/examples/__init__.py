"""Examples: the data of imitation and preference learning, made from recorded episodes."""
