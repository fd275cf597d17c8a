from collections.abc import Mapping
from palaestra.environments.families.challenges.challenge import Maker
INPUT: Mapping[str, Maker] = {}
