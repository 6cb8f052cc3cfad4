"""Reads arrays that speak only DLPack or `__array_interface__`, with nothing but the standard library.

Loaded when such an object is logged for the first time. Memory of the host only: an object on a
device is asked for a copy on the host by its `cpu()` or `get()`.
"""

from __future__ import annotations

import ctypes
from typing import Any

_HOST_DEVICES = {1, 3, 11, 13}  # CPU, CUDA host, ROCm host, CUDA managed
_DLPACK_FORMATS = {
    (0, 8): "b", (0, 16): "h", (0, 32): "i", (0, 64): "q",
    (1, 8): "B", (1, 16): "H", (1, 32): "I", (1, 64): "Q",
    (2, 16): "e", (2, 32): "f", (2, 64): "d",
    (4, 16): "bf16", (6, 8): "?",
}  # fmt: skip
_ITEMS_MAX = 1 << 24  # as the extension
_ITEM_BYTES = {"b": 1, "B": 1, "?": 1, "h": 2, "H": 2, "e": 2, "bf16": 2}
_ITEM_BYTES |= {"i": 4, "I": 4, "f": 4, "q": 8, "Q": 8, "d": 8}


class _Tensor(ctypes.Structure):
    """`DLTensor` of dlpack.h, the first member of what a capsule `dltensor` points to."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def read(array: Any) -> tuple[int, str, bytes]:
    """Copies an array's items.

    Args:
        array: An object with `__dlpack__` or `__array_interface__`.

    Returns:
        Number of dimensions, the items' format as `struct` writes it (`bf16` beside), and the items
        of at most one dimension as bytes; no bytes when there are more.

    Raises:
        TypeError: Items or device can't be read.
    """
    if hasattr(array, "__dlpack__"):
        return _read_dlpack(array)
    return _read_interface(array.__array_interface__)


def _read_dlpack(array: Any) -> tuple[int, str, bytes]:
    device = array.__dlpack_device__() if hasattr(array, "__dlpack_device__") else (1, 0)
    if int(device[0]) not in _HOST_DEVICES:
        for name in ("cpu", "get"):
            if hasattr(array, name):
                return read(getattr(array, name)())
        raise TypeError(f"an array on DLPack device {int(device[0])} has no `cpu()` or `get()`")
    capsule = array.__dlpack__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    # The capsule keeps its name, so it stays the owner and frees the tensor when it goes.
    address = pointer_of(capsule, b"dltensor")
    tensor = _Tensor.from_address(address)
    layout = _DLPACK_FORMATS.get((tensor.code, tensor.bits))
    if layout is None or tensor.lanes != 1:
        raise TypeError(f"DLPack items of type {tensor.code} with {tensor.bits} bits are not numbers")
    if tensor.ndim > 1:
        return tensor.ndim, layout, b""
    size = _ITEM_BYTES[layout]
    count = tensor.shape[0] if tensor.ndim else 1
    stride = tensor.strides[0] * size if tensor.ndim and tensor.strides else size
    start = (tensor.data or 0) + tensor.byte_offset
    return tensor.ndim, layout, _gather(start, count, stride, size)


def _read_interface(interface: dict[str, Any]) -> tuple[int, str, bytes]:
    order, kind, size = interface["typestr"][0], interface["typestr"][1], int(interface["typestr"][2:])
    code = {"i": 0, "u": 1, "f": 2, "b": 6}.get(kind)
    layout = _DLPACK_FORMATS.get((code, size * 8)) if code is not None else None
    if layout is None:
        raise TypeError(f"items of type `{interface['typestr']}` are not numbers")
    shape, strides, data = interface["shape"], interface.get("strides"), interface.get("data")
    if len(shape) > 1:
        return len(shape), layout, b""
    count = shape[0] if shape else 1
    stride = strides[0] if strides else size
    if isinstance(data, tuple):
        items = _gather(data[0], count, stride, size)
    else:
        raise TypeError("an `__array_interface__` without an address is not read")
    import sys

    if size > 1 and order in "<>" and (order == "<") != (sys.byteorder == "little"):
        items = b"".join(items[at : at + size][::-1] for at in range(0, len(items), size))
    return len(shape), layout, items


def _gather(start: int, count: int, stride: int, size: int) -> bytes:
    """Copies `count` items of `size` bytes that lie `stride` bytes apart."""
    if count <= 0:
        return b""
    if count > _ITEMS_MAX:
        raise TypeError(f"found {count} items, at most {_ITEMS_MAX} are taken at once")
    if stride == size:
        return ctypes.string_at(start, count * size)
    return b"".join(ctypes.string_at(start + at * stride, size) for at in range(count))
