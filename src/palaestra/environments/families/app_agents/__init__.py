"""Apps that are agents; see `environment.py`."""
