"""Programs: small Python functions to be written, graded by hidden tests in a sandbox."""
