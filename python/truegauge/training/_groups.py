"""Metric groups: instruments of a program's own, recorded by keyword.

There is no lock here: a group is put in place by one operation of a dictionary, so a forked child
finds nothing held.
"""

from __future__ import annotations

from truegauge._truegauge import training_instruments, warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KINDS = ("gauge", "histogram", "counter", "up_down_counter")
RESERVED = ("dl", "gen_ai", "nv", "truegauge")
"""First words of names whose meaning is shared by everybody; groups of a program leave them alone."""

_PREFIX = "megatron.training."


class MetricSpec:
    """An instrument of a metric group.

    Attributes:
        key: The keyword that records it.
        name: Its name on the wire: `megatron.<subsystem>.<metric>`, or another project's word in front.
        kind: `gauge`, `histogram`, `counter` or `up_down_counter`.
        unit: Its unit on the wire; a unit becomes a suffix of the name in Prometheus.
        description: What it measures.
    """

    __slots__ = ("description", "key", "kind", "name", "unit")

    def __init__(
        self, key: str, name: str, kind: str = "gauge", unit: str = "", description: str = ""
    ) -> None:
        self.key = key
        self.name = name
        self.kind = kind
        self.unit = unit
        self.description = description

    def _parts(self) -> tuple[str, str, str, str, str]:
        return self.key, self.name, self.kind, self.unit, self.description

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MetricSpec) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def __repr__(self) -> str:
        return f"MetricSpec{self._parts()!r}"


_groups: dict[str, dict[str, MetricSpec]] = {}
_said: set[tuple[str, str]] = set()


def register_metric_group(group: str, specs: Iterable[MetricSpec], *, allow_override: bool = False) -> None:
    """Adds a group of instruments. They are made when a meter records the first of them.

    Args:
        group: Its name.
        specs: Its instruments.
        allow_override: Whether it may take the place of another group.

    Raises:
        ValueError: The group is there already or empty, a key comes twice, or a name, key or kind can't be
            used: names are lower-case words between dots, `megatron.<subsystem>.<metric>` for Megatron's
            own, and `dl.`, `gen_ai.`, `nv.` and `truegauge.` are reserved.

    Example:
        >>> register_metric_group("moe", [MetricSpec("balance", "megatron.moe.load_balance")])
    """
    by_key: dict[str, MetricSpec] = {}
    for spec in specs:
        if spec.key in by_key:
            raise ValueError(f"metric group {group!r}: the key {spec.key!r} comes twice")
        _check(group, spec)
        by_key[spec.key] = spec
    _put(group, by_key, allow_override)


def _check(group: str, spec: MetricSpec) -> None:
    where = f"metric group {group!r}, key {spec.key!r}"
    if not spec.key.isidentifier() or spec.key in ("meter", "group", "values", "attributes"):
        raise ValueError(f"{where}: wanted is a key that can be a keyword argument")
    if spec.kind not in KINDS:
        raise ValueError(f"{where}: found kind {spec.kind!r}, wanted one of {', '.join(KINDS)}")
    words = spec.name.split(".")
    if len(words) < 2 or not all(_is_word(word) for word in words):
        raise ValueError(
            f"{where}: found name {spec.name!r}, wanted lower-case words between dots, such as "
            f"`megatron.moe.load_balance`"
        )
    if words[0] in RESERVED:
        raise ValueError(
            f"{where}: `{words[0]}.` is reserved for names that everybody understands alike: begin "
            f"{spec.name!r} with the project's own word"
        )
    if words[0] == "megatron" and len(words) < 3:
        raise ValueError(f"{where}: found name {spec.name!r}, wanted `megatron.<subsystem>.<metric>`")


def _is_word(word: str) -> bool:
    plain = word.replace("_", "a")
    return word[:1].isalpha() and plain.isascii() and plain.isalnum() and word == word.lower()


def _put(group: str, by_key: dict[str, MetricSpec], allow_override: bool) -> None:
    if not by_key:
        raise ValueError(f"metric group {group!r} has no instruments")
    if allow_override:
        _groups[group] = by_key
    elif _groups.setdefault(group, by_key) is not by_key:
        raise ValueError(
            f"the metric group {group!r} is there already: choose another name, or allow overriding"
        )


def unregister_metric_group(group: str) -> bool:
    """Takes a group out again.

    Args:
        group: Its name.

    Returns:
        Whether it was there.

    Raises:
        ValueError: It is built in.
    """
    if group in _BUILT_IN:
        raise ValueError(f"the metric group {group!r} is built in and can't be taken out")
    return _groups.pop(group, None) is not None


def metric_groups() -> dict[str, tuple[MetricSpec, ...]]:
    """Returns the instruments of every group by its name."""
    return {group: tuple(specs.values()) for group, specs in _groups.items()}


def record_metrics(
    meter: object,
    group: str,
    values: Mapping[str, object] | None = None,
    *,
    attributes: Mapping[str, object] | None = None,
    step: object = None,
    **keywords: object,
) -> None:
    """Records values of a group; None is skipped.

    Nothing raises: an unknown group or key, an instrument that can't be made and a value that can't be
    recorded are left out with one warning each. A counter takes what is above zero.

    Args:
        meter: `Telemetry.meter`, or a meter of OpenTelemetry's; None does nothing.
        group: The group.
        values: Values by key.
        attributes: Scalars that make it series of their own.
        step: The training step; a meter of OpenTelemetry's has no place for it.
        **keywords: Values by key; they win over `values`, where a key of these names has to go.

    Example:
        >>> record_metrics(telemetry.meter, "moe", balance=0.93, step=7)  # doctest: +SKIP
    """
    if meter is None:
        return
    specs = _groups.get(group)
    if specs is None:
        known = ", ".join(sorted(_groups))
        _once(
            "group", group, f"there is no metric group {group!r:.80}: nothing is recorded; known are {known}"
        )
        return
    kept: dict[str, object] = {}
    for key, value in {**(values or {}), **keywords}.items():
        if value is None:
            continue
        if key not in specs:
            wanted = ", ".join(specs)
            _once(
                "key",
                f"{group} {key}",
                f"the metric group {group!r} has no key {key!r:.80}: wanted is {wanted}",
            )
            continue
        kept[key] = value
    from truegauge.training._foreign import instrument_of, put

    for key, value in kept.items():
        instrument = instrument_of(meter, group, specs[key])
        if instrument is not None:
            put(instrument, specs[key], value, attributes, step)


def record_inference_metrics(
    meter: object,
    *,
    request_duration_s: float | None = None,
    model: str | None = None,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    operation: str = "text_completion",
    provider: str = "nemo",
) -> None:
    """Records a request of inference under the names of OpenTelemetry's convention for it.

    Args:
        meter: `Telemetry.meter`, or a meter of OpenTelemetry's.
        request_duration_s: Time that it took, seconds.
        model: The model that was asked for.
        input_tokens: Tokens of the prompt.
        output_tokens: Tokens of the answer.
        operation: What was asked for.
        provider: Who answers.
    """
    common = {"gen_ai.operation.name": operation, "gen_ai.provider.name": provider}
    if model is not None:
        common["gen_ai.request.model"] = model
    record_metrics(meter, "inference", request_duration=request_duration_s, attributes=common)
    for kind, tokens in (("input", input_tokens), ("output", output_tokens)):
        record_metrics(
            meter, "inference", token_usage=tokens, attributes={**common, "gen_ai.token.type": kind}
        )


def _once(cause: str, what: str, text: str) -> None:
    if len(_said) < 1000 and (cause, what) not in _said:
        _said.add((cause, what))
        warn(text)


def _built_in() -> frozenset[str]:
    keys = {"gen_ai.server.request.duration": "request_duration", "gen_ai.client.token.usage": "token_usage"}
    found: dict[str, dict[str, MetricSpec]] = {}
    for group, name, kind, unit, description in training_instruments():
        key = keys.get(name) or name.removeprefix(_PREFIX)
        found.setdefault(group, {})[key] = MetricSpec(key, name, kind, unit, description)
    _groups.update(found)
    return frozenset(found)


_BUILT_IN = _built_in()
