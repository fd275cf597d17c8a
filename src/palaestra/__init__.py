"""palaestra: build, run, train and evaluate LLM agents in interactive environments."""

__version__ = "0.1.0"
