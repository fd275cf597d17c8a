"""The Python API: what `import palaestra as pa` offers, and what the command line calls.

`palaestra/__init__.py` maps the names; here they are made. Whatever needs a loop of its own has
two forms, one that waits (`evaluate`) and one to be awaited (`aevaluate`), of the same code.
"""

from palaestra.experiment.machine import plan_threads

plan_threads()  # before any module of this room imports torch
