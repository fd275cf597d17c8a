"""Cases: generated questions whose answers have several parts, one for each member of a team."""
