"""Websites to be built, judged by driving what they promise in a browser."""
