"""Local models: the network, its engine and its cache, in this process."""
