"""The loop: roll out, credit, learn; and what watches over it."""
