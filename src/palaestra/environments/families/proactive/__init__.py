"""Help that nobody asked for: streams of a person's activity, offers, and silence."""
