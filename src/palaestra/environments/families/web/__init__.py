"""Web sites, and tasks on them."""
