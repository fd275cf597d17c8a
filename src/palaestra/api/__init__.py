"""The Python API: what `import palaestra as pa` offers, and what the command line calls.

`palaestra/__init__.py` maps the names to these modules. Asynchronous work has two forms of the same
code: one that blocks (`evaluate`) and one to await (`aevaluate`).
"""

from palaestra.runtime.machine import plan_threads

plan_threads()  # before any module of this package imports torch
