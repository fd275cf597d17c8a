from collections.abc import Mapping
from palaestra.environments.families.challenges.challenge import Maker
WORKFLOW: Mapping[str, Maker] = {}
