"""Messages between the players of an environment: channels, boards, and the knob `messages`."""
