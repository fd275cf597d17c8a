"""Detectors of prompt injections in the text of pages, and what they find."""
