"""Office tasks in which a colleague must be asked, who is a program or a model."""
