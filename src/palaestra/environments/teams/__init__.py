"""Teams: several members act in an environment of one player, by a protocol."""
