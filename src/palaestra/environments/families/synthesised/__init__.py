"""The tasks and conversations of a folder that `palaestra synthesise` made."""
