"""Remote models: any server that is asked over HTTP."""
