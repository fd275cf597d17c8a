"""Stage: actors and cameras on a 2-D stage, whose engine refuses illegal positions and shots."""
