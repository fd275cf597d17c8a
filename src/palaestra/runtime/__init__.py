"""The runtime: this machine, concurrency, and progress."""
