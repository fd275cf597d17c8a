"""What each stage of a run does; each is a function of the stage's context."""
