"""Where a rank is in the layout of its job, as the run's attributes `parallel/<rank>/<what>`."""

from __future__ import annotations

import sys

from truegauge._truegauge import warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

AXES = ("tp", "pp", "dp", "ep", "cp")
"""Tensor, pipeline, data, expert and context parallelism."""
_MEGATRON = ("megatron.core.parallel_state", "megatron.core.mpu")
"""Modules that know the layout, where the program has loaded one."""
_OF_MEGATRON = {
    "tp": "get_tensor_model_parallel_rank",
    "pp": "get_pipeline_model_parallel_rank",
    "dp": "get_data_parallel_rank",
    "ep": "get_expert_model_parallel_rank",
    "cp": "get_context_parallel_rank",
}
_OF_MESH = {
    "tp": "tp",
    "tensor": "tp",
    "tensor_parallel": "tp",
    "mp": "tp",
    "pp": "pp",
    "pipeline": "pp",
    "pipeline_parallel": "pp",
    "dp": "dp",
    "data": "dp",
    "data_parallel": "dp",
    "fsdp": "dp",
    "dp_shard": "dp",
    "shard": "dp",
    "ep": "ep",
    "expert": "ep",
    "expert_parallel": "ep",
    "cp": "cp",
    "context": "cp",
    "sp": "cp",
    "context_parallel": "cp",
}
"""What a dimension of a DeviceMesh is called."""


def facts(given: Mapping[str, object], mesh: object = None) -> dict[str, int | str]:
    """A rank's place: what is given, else what a mesh says, else what Megatron knows.

    Args:
        given: Coordinates by axis and texts; None is not known.
        mesh: A `torch.distributed.device_mesh.DeviceMesh` with names of its dimensions.

    Returns:
        Those that are known.
    """
    place: dict[str, int | str] = {**of_megatron(), **of_mesh(mesh)}
    if (uuid := gpu_uuid()) is not None:
        place["gpu_uuid"] = uuid
    for name, value in given.items():
        if value is None:
            continue
        if name not in AXES:
            place[name] = str(value)
        elif (number := _whole(value)) is not None:
            place[name] = number
        else:
            warn(f"`{name}` is {value!r:.80}, wanted is a whole number from 0 on: it is left out")
    return place


def of_megatron() -> dict[str, int | str]:
    """Coordinates as Megatron Core knows them, where it is loaded and set up."""
    place: dict[str, int | str] = {}
    for name in _MEGATRON:
        module = sys.modules.get(name)
        if module is None:
            continue
        for axis, getter in _OF_MEGATRON.items():
            # Each fails by itself: older versions have fewer, and a layout may be set up in part.
            try:
                number = _whole(getattr(module, getter)())
            except Exception:  # noqa: S112
                continue
            if number is not None:
                place[axis] = number
        if place:
            break
    return place


def of_mesh(mesh: object) -> dict[str, int | str]:
    """Coordinates as a DeviceMesh has them, by the names of its dimensions."""
    place: dict[str, int | str] = {}
    if mesh is None:
        return place
    try:
        names = [str(name) for name in getattr(mesh, "mesh_dim_names", None) or ()]
        for name in names:
            if axis := _OF_MESH.get(name.lower()):
                number = _whole(mesh.get_local_rank(name))  # type: ignore[attr-defined]
                # Replicas of shards are data-parallel too, and the outer of the two.
                if number is not None and axis not in place:
                    place[axis] = number
        if not place:
            warn(f"the mesh has the dimensions {names}: none of them is known, name `tp=`, `pp=` and so on")
    except Exception as error:
        warn(f"where this rank is can't be read from the mesh ({error!r:.200}): name `tp=`, `pp=` and so on")
    return place


def gpu_uuid() -> str | None:
    """The driver's name of the card that PyTorch uses here, where it is at work and tells."""
    torch = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return None
        uuid = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", None)
        text = "" if uuid is None else str(uuid)
        return f"GPU-{text.removeprefix('GPU-')}" if text else None
    except Exception:
        return None


def _whole(value: object) -> int | None:
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if 0 <= number < 1 << 31 else None
