from collections.abc import Mapping
from palaestra.environments.families.challenges.challenge import Maker
COGNITION: Mapping[str, Maker] = {}
