"""Reports: tables, curves, transcripts and advice from finished runs."""
