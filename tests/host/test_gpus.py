"""Finding graphics processors by what drivers show. No machine of ours has one: the trees below are written as their documents describe
them, so what these tests show is that we read that right, and that a machine without any says so."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from supervisor.host import usage
from supervisor.host.usage import NONE_VISIBLE, GpusGpu, probe, visibility
from supervisor.kernel.errors import Refused


def put(root: Path, path: str, text: str = "") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def nvidia(root: Path, address: str, minor: int, model: str = "NVIDIA A100") -> None:
    put(root, f"proc/driver/nvidia/gpus/{address}/information", f"Model: \t\t {model}\nIRQ: 12\nDevice Minor: \t {minor}\n")
    put(root, f"dev/nvidia{minor}")


def amd(root: Path, node: int, minor: int, simd: int) -> None:
    put(root, f"sys/class/kfd/kfd/topology/nodes/{node}/properties", f"cpu_cores_count 0\nsimd_count {simd}\ndrm_render_minor {minor}\n")
    put(root, "dev/kfd")
    if minor:
        put(root, f"dev/dri/renderD{minor}")


def test_this_machine() -> None:
    found = probe()
    assert bool(found.gpus) == (found.why == "")
    for gpu in found.gpus:
        assert all(Path(device).exists() for device in gpu.devices)


def test_no_device_is_said(tmp_path: Path) -> None:
    assert probe(tmp_path) == usage.Found((), "unavailable: no NVIDIA or AMD device here")
    assert visibility((), ()) == {}


def test_nvidia_devices_are_numbered_by_their_place_on_the_bus(tmp_path: Path) -> None:
    nvidia(tmp_path, "0000:41:00.0", 0, "NVIDIA H100")
    nvidia(tmp_path, "0000:01:00.0", 1)
    put(tmp_path, "dev/nvidiactl")
    assert probe(tmp_path).gpus == (
        GpusGpu("nvidia", 0, "NVIDIA A100", ("/dev/nvidia1", "/dev/nvidiactl")),
        GpusGpu("nvidia", 1, "NVIDIA H100", ("/dev/nvidia0", "/dev/nvidiactl")),
    )


def test_a_driver_without_device_files_is_said(tmp_path: Path) -> None:
    nvidia(tmp_path, "0000:01:00.0", 0)
    (tmp_path / "dev/nvidia0").unlink()
    assert probe(tmp_path) == usage.Found((), "unavailable: NVIDIA's driver knows devices, but /dev shows none of them")


def test_amd_nodes_that_are_processors_are_left_out(tmp_path: Path) -> None:
    amd(tmp_path, 0, 0, 0)
    assert probe(tmp_path) == usage.Found((), "unavailable: AMD's compute driver is there, but no device of its is")
    amd(tmp_path, 2, 128, 320)
    amd(tmp_path, 10, 129, 320)
    assert [(gpu.index, gpu.devices[0]) for gpu in probe(tmp_path).gpus] == [(0, "/dev/dri/renderD128"), (1, "/dev/dri/renderD129")]


def test_what_a_driver_writes_may_be_anything(tmp_path: Path) -> None:
    put(tmp_path, "proc/driver/nvidia/gpus/0000:01:00.0/information", "Device Minor: ../../etc\nModel\n")
    put(tmp_path, "proc/driver/nvidia/gpus/stray", "")
    put(tmp_path, "sys/class/kfd/kfd/topology/nodes/0/properties", "simd_count many\n\x00")
    put(tmp_path, "dev/kfd")
    assert probe(tmp_path).gpus == ()


ONE, TWO, THREE = GpusGpu("nvidia", 0, "", ()), GpusGpu("nvidia", 1, "", ()), GpusGpu("amd", 0, "", ())


@pytest.mark.parametrize(
    ("chosen", "shown"),
    [
        ((), {}),
        ((TWO, ONE), {"CUDA_VISIBLE_DEVICES": "0,1", "NVIDIA_VISIBLE_DEVICES": "0,1"}),
        ((TWO,), {"CUDA_VISIBLE_DEVICES": "1", "NVIDIA_VISIBLE_DEVICES": "1"}),
        ((THREE,), {"HIP_VISIBLE_DEVICES": "0", "ROCR_VISIBLE_DEVICES": "0"}),
    ],
)
def test_only_what_was_chosen_is_shown(chosen: tuple[GpusGpu, ...], shown: dict[str, str]) -> None:
    assert visibility((ONE, TWO, THREE), chosen) == {**NONE_VISIBLE, **shown}


def test_variables_reach_a_process() -> None:
    environ = visibility((ONE,), (ONE,))
    done = subprocess.run(["/usr/bin/env"], env=environ, capture_output=True, text=True, check=True)
    assert "CUDA_VISIBLE_DEVICES=0\n" in done.stdout


def test_a_task_gets_all_or_none_or_those_it_names() -> None:
    two = tuple(GpusGpu("nvidia", index, "x", (f"/dev/nvidia{index}",)) for index in (0, 1))
    found = usage.Found((*two, GpusGpu("amd", 0, "AMD", ("/dev/kfd",))), "")
    assert usage.chosen(found, True) == found.gpus
    assert usage.chosen(found, False) == ()
    assert usage.chosen(found, (0,)) == (two[0], found.gpus[2])
    with pytest.raises(Refused) as refused:
        usage.chosen(found, (1, 2))
    assert "there are nvidia 0, nvidia 1, amd 0" in refused.value.line()
    with pytest.raises(Refused, match="unavailable: no NVIDIA"):
        usage.chosen(usage.Found((), "unavailable: no NVIDIA or AMD device here"), (0,))
