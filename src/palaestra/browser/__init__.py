"""A real browser without a network: pages of sites that live in this process.

Chromium runs in bubblewrap, each world has a browser context of its own, every request is answered
by the world's sites, and clock and chance belong to the task. See docs/web.md.
"""
