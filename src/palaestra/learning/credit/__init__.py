"""Credit: how much better than expected each turn, or each token, of a rollout was."""
