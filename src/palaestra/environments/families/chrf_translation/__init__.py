"""Translation: sentences to be translated until their score passes a gate."""
