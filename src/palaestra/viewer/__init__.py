"""A local web page over run folders: `palaestra view`."""
