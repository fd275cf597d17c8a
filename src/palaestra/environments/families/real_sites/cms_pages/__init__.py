"""The kinds of pages of the content management system: an application of Django."""
