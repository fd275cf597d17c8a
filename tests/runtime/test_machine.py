"""What a report says of the machine."""

from __future__ import annotations

from palaestra.runtime.machine import _gpu_names, as_document


def test_gpus_are_named_as_the_driver_names_them(tmp_path):
    for number in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / number).mkdir()
        (tmp_path / number / "information").write_text(
            "Model: \t\t NVIDIA H200\nIRQ:   \t\t 27\nGPU UUID: \t GPU-0\n"
        )
    assert _gpu_names(tmp_path) == "NVIDIA H200, NVIDIA H200"


def test_a_machine_without_the_driver_has_none(tmp_path):
    assert _gpu_names(tmp_path / "missing") == ""
    assert isinstance(as_document()["gpu"], str)
