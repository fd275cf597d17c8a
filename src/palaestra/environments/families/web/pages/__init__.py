"""Pages of compiled apps."""
