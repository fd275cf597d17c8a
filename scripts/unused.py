"""Lists source code that only tests use: `make check` runs it.

python scripts/unused.py                     exit with 1 if there is any

vulture searches for names. It cannot see classes that a registry names in a string, attributes that
a template of the viewer reads, and fields that are shown or stored all at once.
"""

from __future__ import annotations

import re
import sys
from itertools import chain
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).parents[1]
SEARCHED = ("src", "benchmarks", "recipes", "scripts")
REGISTERED = (
    "@component",
    "@model_validator",
    "@field_validator",
    "@on_model",
    "@on_field",
    "@template",
)

ALLOWED = {
    "read by other packages, which call or look these up by name": """
        allow_bf16_reduced_precision_reduction attention_mask _control_tokens capture_signals
        convert_tokens_to_ids cwd
        action_set make_model max_prompt_tokens
        decoder do_GET do_POST encode_special_tokens format_message get_template_vars handle_data
        handle_endtag handle_starttag ignore_merges
        is_connected log_message max_steps normalizer on_files on_page_markdown
        model_config model_max_length nb_objects nb_rooms no_wrap numUserAgents on_log on_step_end
        output_type overflow persistent_id persistent_load pre_tokenizer pytest_addoption
        pytest_collection_modifyitems quest_length reportinfo repr_failure resource_filename
        runtest should_exit total_mass APPENDS_SYSTEM_PROMPT EXECUTES_CODE SUPPORTS_MCP
        SUPPORTS_RESUME SUPPORTS_TOOL_INTERCEPTION QUERIES""",
    "named in Django's settings, and called by it and its applications": """
        DatabaseSearchEngine DatabaseStorage WholePictures build_query delete_thumbnails
        generate_thumbnail iterable obj_or_string _object subpage_types today urlconf
        __call__ __instancecheck__""",
    "parts of Trac, which finds and calls them, and what it and SQLite read": """
        WorldConnector WorldRepository _active_cursors _all_repositories _create_unique_file _eager
        abstract get_connection get_repositories get_supported_schemes isolation_level
        poolable""",
    "read by Python and by notebooks": "__getattr__ __dir__ _repr_html_",
    "fields that are stored or shown all at once, and what requests may hold": """
        background best_of brier clipped clipped_high clipped_low ece echo first_breach
        gradient_cosine overconfidence pearson player_invalid player_tokens player_turn_seconds
        player_turns RECOMPUTE silent_groups spearman
        specificity top_logprobs zero_tokens zero_turns""",
    "parts of methods that no recipe can use yet (see docs/algorithms.md)": """
        beam malt_values preference_pairs requested tallies
        value_targets voted""",
    "documented for programs of one's own": """
        disagreements in_reward journey_score python_mounts repair
        to_pandas trace_of weakest win_probability""",
    "what tests compare with": "EXPLOITABLE in_torchs_order SIGNATURE",
}
"""Why what stays, although no code of ours uses it."""


def named() -> set[str]:
    """Return the names in strings such as "module:Class", and those that templates read."""
    found: set[str] = set()
    files = [(ROOT / "src").rglob("*.py"), (ROOT / "scripts").glob("*.py")]
    for path in chain(*files, (ROOT / "recipes").rglob("*.toml")):
        found |= set(re.findall(r"\"[\w.{}=]*:(\w+)[\w/:]*\"", path.read_text()))
    for path in (ROOT / "src").rglob("templates/**/*.html"):
        found |= set(re.findall(r"\.(\w+)", path.read_text()))
    return found


def main() -> int:
    allowed = {name for names in ALLOWED.values() for name in names.split()}
    search = Vulture(ignore_decorators=list(REGISTERED))
    search.scavenge([str(ROOT / part) for part in SEARCHED])
    seen = named()
    items = [item for item in search.get_unused_code() if item.name not in seen]
    for item in items:
        if item.name not in allowed:
            print(item.get_report().replace(f"{ROOT}/", ""))
    superfluous = allowed - {item.name for item in items}
    for name in sorted(superfluous):
        print(f"scripts/unused.py: '{name}' need not be allowed")
    return int(bool(superfluous) or any(item.name not in allowed for item in items))


if __name__ == "__main__":
    sys.exit(main())
