"""Critics: learned numbers for states and replies, which credit rules and filters read."""
