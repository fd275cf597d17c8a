"""Tasks in which time matters: answers to wait for, deadlines, a world that changes meanwhile."""
