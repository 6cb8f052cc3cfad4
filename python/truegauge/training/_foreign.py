"""Instruments of a meter, ours or OpenTelemetry's, made once and kept as long as the meter lives."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from truegauge._truegauge import Instrument
from truegauge.training._groups import MetricSpec, _groups, _once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from truegauge._truegauge import Meter

# By meter, then by group and key. An instrument must not hold its meter; OpenTelemetry's don't.
_made: WeakKeyDictionary[Any, dict[tuple[str, MetricSpec], Any]] = WeakKeyDictionary()
_PUT = {"gauge": "set", "histogram": "record", "counter": "add", "up_down_counter": "add"}
# Bounds that the convention for inference advises, since the default ones put it all in one bucket.
_BOUNDS = {
    "gen_ai.server.request.duration": [0.01 * 2**power for power in range(14)],
    "gen_ai.client.token.usage": [float(4**power) for power in range(14)],
}


def instrument_of(meter: Meter | Any, group: str, spec: MetricSpec) -> Any:
    """The instrument of a meter; None where it can't be made, which is warned of once.

    Args:
        meter: Whose.
        group: Name of the group it is in.
        spec: What it is.

    Returns:
        The instrument.
    """
    try:
        of_meter = _made.get(meter)
        if of_meter is None:
            of_meter = _made[meter] = {}
        if (group, spec) not in of_meter:
            # Kept as None first: what can't be made is not tried at every step.
            of_meter[group, spec] = None
            of_meter[group, spec] = _make(meter, spec)
        return of_meter[group, spec]
    except Exception as error:
        _once("make", spec.name, f"the instrument {spec.name} can't be made and is left out: {_words(error)}")
        return None


def _make(meter: Any, spec: MetricSpec) -> Any:
    make = getattr(meter, f"create_{spec.kind}")
    bounds = _BOUNDS.get(spec.name)
    if bounds is not None:
        try:
            return make(
                spec.name,
                unit=spec.unit,
                description=spec.description,
                explicit_bucket_boundaries_advisory=bounds,
            )
        except TypeError:  # an older OpenTelemetry has no such keyword
            pass
    return make(spec.name, unit=spec.unit, description=spec.description)


def put(
    instrument: Any,
    spec: MetricSpec,
    value: Any,
    attributes: Mapping[str, object] | None,
    step: object = None,
) -> None:
    """Records a value; what can't be recorded is warned of once.

    Args:
        instrument: Where to.
        spec: What it is.
        value: The value.
        attributes: Its attributes.
        step: The training step; an instrument of OpenTelemetry's has no place for it.
    """
    at = {"step": step} if step is not None and isinstance(instrument, Instrument) else {}
    try:
        number = value if isinstance(value, int) else float(value)
        if spec.kind == "counter" and not number > 0:
            return
        take = getattr(instrument, _PUT[spec.kind])
        if attributes:
            take(number, dict(attributes), **at)
        else:
            take(number, **at)
    except Exception as error:
        _once(
            "record", spec.name, f"a value of {spec.name} can't be recorded and is left out: {_words(error)}"
        )


def record_training(meter: Any, values: dict[str, Any], unknown: Iterable[str] | None) -> None:
    """Records the trainer's eight through a meter that is not ours.

    Args:
        meter: The meter.
        values: Values by keyword.
        unknown: Keywords that are none of them.
    """
    specs = _groups["training"]
    for name in unknown or ():
        _once("key", f"training {name}", f"there is no instrument `{name}`: wanted are {', '.join(specs)}")
    for key, value in values.items():
        if value is None:
            continue
        instrument = instrument_of(meter, "training", specs[key])
        if instrument is not None:
            put(instrument, specs[key], value, None)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]
