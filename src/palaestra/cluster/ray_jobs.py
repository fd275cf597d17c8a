"""Runs that are left to a cluster as Ray jobs: the command ends, the run goes on there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from palaestra.cluster.ray_launcher import check_installed
from palaestra.core.errors import InputError, MissingPackage

NEEDED = "--detach needs Ray's jobs; install them with: pip install 'ray[default]==2.60.0'"


def submit(address: str | None, entrypoint: str, files: Mapping[str, str]) -> str:
    """Leave a command to a cluster; return the name of its job.

    Args:
        address: of the cluster, or that of its dashboard; None: the variable RAY_ADDRESS.
        entrypoint: what the job runs, in a shell on the machine of the cluster's head.
        files: texts by name, which are in the folder where it runs.

    Raises:
        MissingPackage: Ray or its jobs are not installed.
        InputError: there is no such cluster, or it runs no jobs.
    """
    check_installed()
    named = address or os.environ.get("RAY_ADDRESS")
    if named is None:
        raise InputError(
            "--detach leaves the run to a cluster that outlives this command; give its address "
            "with --on ray=HOST:PORT or RAY_ADDRESS."
        )
    try:
        from ray.job_submission import JobSubmissionClient
    except ImportError as error:
        raise MissingPackage(NEEDED) from error
    with tempfile.TemporaryDirectory(prefix="palaestra-") as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        try:
            client = JobSubmissionClient(named)
            found: str = client.submit_job(
                entrypoint=entrypoint, runtime_env={"working_dir": folder} if files else None
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            if "ray[default]" in reason:
                raise MissingPackage(NEEDED) from error
            raise InputError(
                f"The Ray cluster at '{named}' takes no jobs ({reason}); it needs its dashboard "
                "and ray[default] on the machine of its head."
            ) from error
    return found
