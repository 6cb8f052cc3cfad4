"""For trainers and libraries that others wrote; each module needs only the package it is named after."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from truegauge.integrations import torch


def __getattr__(name: str) -> object:
    """Loads `torch` when it is first named; it does not need PyTorch to be there."""
    if name == "torch":
        import importlib

        return importlib.import_module("truegauge.integrations.torch")
    raise AttributeError(f"module 'truegauge.integrations' has no attribute {name!r}")


__all__ = ["torch"]
