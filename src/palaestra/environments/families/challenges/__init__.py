"""Challenges: forty small web pages, each of which gives a code once its task is done."""
