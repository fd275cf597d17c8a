"""Renderers: messages to tokens and back."""
