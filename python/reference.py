"""Writes the reference pages of the Python package from the code, into `docs/reference`.

`python.md`, `settings.md` and `training-switches.md`.

python python/reference.py            # write them
python python/reference.py --check    # exit 1 when one is stale
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType

# The installed package is documented, not the sources beside this file, which lack the native half.
sys.path.pop(0)

import truegauge
from truegauge import _settings, _truegauge, training

PAGES = Path(__file__).resolve().parent.parent / "docs" / "reference"

# Arguments of `init()` and the variable that stands behind each.
VARIABLE_OF = {
    "organization": "TRUEGAUGE_ORGANIZATION",
    "workspace_name": "TRUEGAUGE_WORKSPACE",
    "project_name": "TRUEGAUGE_PROJECT",
    "run_name": "TRUEGAUGE_RUN",
    "capture_system_metrics": "TRUEGAUGE_CAPTURE_SYSTEM_METRICS",
    "system_metrics_interval_secs": "TRUEGAUGE_SYSTEM_METRICS_INTERVAL_SECS",
    "url": "TRUEGAUGE_URL",
    "token": "TRUEGAUGE_TOKEN",
    "spool_dir": "TRUEGAUGE_SPOOL_DIR",
    "resume_strategy": "TRUEGAUGE_RESUME_STRATEGY",
    "init_mode": "TRUEGAUGE_INIT_MODE",
    "orchestration_id": "TRUEGAUGE_ORCHESTRATION_ID",
    "queue_capacity": "TRUEGAUGE_QUEUE_CAPACITY",
    "spool_bytes_max": "TRUEGAUGE_SPOOL_BYTES_MAX",
    "close_timeout_secs": "TRUEGAUGE_CLOSE_TIMEOUT_SECS",
    "strict": "TRUEGAUGE_STRICT",
    "disabled": "TRUEGAUGE_DISABLED",
    "offline": "TRUEGAUGE_INIT_MODE",
    "ingestion_url": "TRUEGAUGE_URL",
    "api_key": "TRUEGAUGE_TOKEN",
    "disk": "TRUEGAUGE_SPOOL_DIR",
}
# Defaults of arguments that no variable stands behind, and where the variable's own text would mislead.
DEFAULT_OF = {
    "project_name": "`default`",
    "offline": "`false`",
    "init_timeout_secs": "`1`",
}

# Other names of the same function.
ALIASES = {
    "truegauge.log_distributed": "truegauge.log",
    "truegauge.shutdown_logger": "truegauge.shutdown",
    "Run.shutdown_logger": "Run.shutdown",
    "Run.log": "truegauge.log",
}

SETTINGS_HEAD = """\
# Settings

*Written by `python/reference.py` from the code; a test holds it against the code.*

An argument of `truegauge.init()` goes before the environment, a `TRUEGAUGE_*` variable before its
`METRANA_*` one, and that before the default. Values of variables are trimmed; an empty one is as good as
unset. A value that can't be read is left out and warned of once, never raised. Switches take `1`, `true`,
`yes`, `on` and `0`, `false`, `no`, `off`. Rank, world size and restart count come from the variables of
torchrun, Slurm, Open MPI and PMI; where the world has more than one rank, what a rank logs carries the
label `rank`.
"""

SWITCHES_HEAD = """\
# Switches of training telemetry

*Written by `python/reference.py` from the code; a test holds it against the code.*

What `truegauge.training.setup()` reads where the caller says nothing: each name with `MEGATRON_OTEL_` in front, else
with `NEMO_LENS_`. A blank counts as unset. A value that can't be used is warned of, and the default holds.
"""

PYTHON_HEAD = """\
# Python reference

*Written by `python/reference.py` from the code; a test holds it against the code.*

```python
import truegauge as tg
```

Every argument after the first is keyword-only, except the value in `log("loss", 0.5)` and
`log_attributes("data/version", "v3")`. Nothing raises into a training loop but what is listed under
*Raises*. Settings of a run: [settings.md](settings.md).

## Bad input

`log` never raises unless the call or the run is strict. What it can't keep is counted with the run under a
reason, and warned of once per reason as `TruegaugeWarning`; the rest of the same call is kept.

| given | what becomes of it | reason |
|---|---|---|
| NaN, infinities | kept as they are; charts mark them | - |
| True, False | kept as 1 and 0 | - |
| None, text, bytes, complex numbers, sets, nested mappings, any other object without `__float__` | not kept | `value_type` |
| an int beyond the range of a float | not kept | `value_type` |
| an item of an array that is one of these | that item is not kept and its step stays empty | `value_type` |
| an array of two or more dimensions, an item that is itself an array | not kept | `value_shape` |
| an empty array | nothing | - |
| a step that is NaN, not whole, beyond 64 bits or not a number; not as many steps as items | those points are not kept | `step` |
| a step that goes back or repeats | kept | - |
| a timestamp that is none of int, float and `datetime`, or outside 1678 to 2262 | not kept | `timestamp` |
| a name that is empty, no text, over 256 bytes or has control characters | not kept | `metric_name` |
| labels that are no mapping; a label key that is no text, has other characters than letters, digits and `_`, or is one the run sets (`run`, `scale`, ...) | not kept | `label_key` |
| a label value that is neither text nor a number | not kept | `label_value` |
| a label key or value over 64 bytes | not kept | `label_too_long` |
| a label that would make a series of each value (`request_id`, `user_id`, ...) | not kept | `label_refused` |
| more labels than a series may have (30, the run's own among them) | not kept | `label_count` |
| a series beyond the 200,000 of one process | not kept | `series_limit` |
| a scale that is no text | not kept | `scale` |
| a second positional argument beside a mapping | not read; the points are kept | `arguments` |

## How a run ends

| what happens | what becomes of the run |
|---|---|
| `close()`, the end of the `with` block, the end of the program, `sys.exit(n)` | `finished`; the exit status is untouched |
| an exception leaves the `with` block or the program, Ctrl-C among them | `failed`, with the exception as the reason |
| `shutdown()` | `paused`: the next `init()` goes on with it |
| SIGTERM | `failed`, after what was logged is with the server or on disk; then the default action, so the status is the usual one. Only where the program handles SIGTERM in no other way, and only when `init()` ran in the main thread. A main thread inside a long call of C code answers after that call |
| Ctrl-C while `flush()` or `close()` waits | `KeyboardInterrupt` at once; what is not with the server is on disk |
| `kill -9`, the machine goes down | `stale` a minute later; every point whose `flush()` returned is there, later ones up to about the last second |
| `os.fork()`, `multiprocessing` with `fork` | the child's first call begins a session of its own; a child that calls nothing does nothing. A child of `multiprocessing` ends its session when it ends |
| `multiprocessing` with `spawn` or `forkserver`, a subprocess | a child has a run when it calls `init()`; with the same names it is the same run |
| `init()` again with the same names, as a notebook's cell does | the same object goes on |
| `init()` of another run | in a notebook the one before is closed; in a program both stay open |

The bound of `close()` is `close_timeout_secs`, 10 s by default, and counts while the server acknowledges; a
server that is away does not delay the end. What is left then is in the spool on disk, and one line on
standard error names the command that sends it.
"""


def settings_page() -> str:
    """The page of every argument and variable."""
    variables = {row[0]: row for row in _truegauge.settings()}
    parameters = [
        p for p in inspect.signature(truegauge.init).parameters.values() if p.kind is p.KEYWORD_ONLY
    ]
    meaning = arguments_of(truegauge.init.__doc__ or "")
    lines = [SETTINGS_HEAD, "## Arguments of `init()`", "", "| argument | default | meaning | variable |"]
    lines.append("|---|---|---|---|")
    for parameter in parameters:
        variable = VARIABLE_OF.get(parameter.name)
        default = DEFAULT_OF.get(parameter.name) or written(variables[variable][2] if variable else "")
        behind = f"`{variable}`" if variable else "-"
        lines.append(f"| `{parameter.name}` | {default} | {meaning[parameter.name]} | {behind} |")
    lines += ["", "### Accepted without effect", ""]
    lines += ["Other loggers know these. Each is taken with one debug line of the logger `truegauge`.", ""]
    lines += ["| argument | why nothing needs it |", "|---|---|"]
    lines += [f"| `{name}` | {why} |" for name, why in _settings.WITHOUT_EFFECT.items()]
    lines += ["", "## Environment variables", ""]
    lines += ["| variable | read where that is unset | default | meaning |", "|---|---|---|---|"]
    for name, fallback, default, text, has_effect in _truegauge.settings():
        other = f"`{fallback}`" if fallback else "-"
        shown = written(default) if has_effect else "no effect"
        lines.append(f"| `{name}` | {other} | {shown} | {text} |")
    return "\n".join(lines) + "\n"


def written(default: str) -> str:
    """A default as a table shows it."""
    if not default:
        return "none"
    return default if " " in default else f"`{default}`"


def switches_page() -> str:
    """The page of what `training.setup()` reads."""
    lines = [SWITCHES_HEAD, "| variable | default | meaning |", "|---|---|---|"]
    rows = _truegauge.training_switches()
    for kind, names, default, text in rows:
        if kind == "switch":
            shown = ", else ".join(f"`{name}`" for name in names)
            lines.append(f"| {shown} | {written(default)} | {text} |")
    lines += ["", "## Which ranks export", "", "| strategy | means |", "|---|---|"]
    lines += [f"| `{name}` | {text} |" for name, text in _truegauge.training_strategies()]
    lines += ["", "## Span groups", "", "| group | in `default` | in `per_step` |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {'yes' if in_default else '-'} | {'yes' if in_per_step else '-'} |"
        for name, in_default, in_per_step in _truegauge.training_span_groups()
    ]
    lines += ["", "`all` and `profiling` have every group.", "", "## Where and how it goes", ""]
    lines += ["OpenTelemetry's own variables, without a prefix.", ""]
    lines += ["| variable | default | meaning |", "|---|---|---|"]
    lines += [
        f"| `{names[0]}` | {written(default)} | {text} |"
        for kind, names, default, text in rows
        if kind == "variable"
    ]
    return "\n".join(lines) + "\n"


def python_page() -> str:
    """The page of everything the package exports."""
    parts = [PYTHON_HEAD, *module_parts(truegauge, "")]
    parts += [
        f"# `truegauge.training`\n\n{body(training.__doc__ or '')}",
        *module_parts(training, "training."),
    ]
    return "\n".join(parts)


def module_parts(module: ModuleType, prefix: str) -> list[str]:
    """Functions, then classes of a module."""
    parts = ["## Functions\n"]
    names = [name for name in module.__all__ if not name.startswith("__")]
    found = {name: getattr(module, name) for name in names}
    parts += [
        entry(f"truegauge.{prefix}{name}", value)
        for name, value in found.items()
        if not inspect.isclass(value) and not inspect.ismodule(value)
    ]
    parts.append("## Classes\n")
    for name, value in found.items():
        if inspect.isclass(value):
            parts.append(f"### `truegauge.{prefix}{name}`\n\n{body(value.__doc__ or '')}")
            parts += [entry(f"{name}.{member}", method) for member, method in methods(value)]
    return parts


def methods(found: type) -> list[tuple[str, object]]:
    """Public methods with words of their own, inherited ones included, those of Python's own types not."""
    if issubclass(found, BaseException):
        return []
    plain = {n for base in (dict, list) if issubclass(found, base) for n in dir(base)}
    own = [(n, getattr(found, n)) for n in sorted(dir(found)) if not n.startswith("_")]
    hidden = {"after_fork", "begin_step", "change_tags", "describe", "end", "end_step", "log_record"}
    hidden |= {"note_collective", "read_flight_recorder"}
    if found is truegauge.Run:
        hidden.add("set_attributes")
    return [(n, v) for n, v in own if callable(v) and n not in hidden | plain]


def entry(name: str, function: object) -> str:
    """A function's heading and text."""
    alias = ALIASES.get(name)
    if alias:
        return f"### `{name}`\n\nThe same as `{alias}`.\n"
    signature = inspect.signature(function)  # type: ignore[arg-type]
    shown = [p.replace(annotation=p.empty) for p in signature.parameters.values() if p.name != "self"]
    signature = signature.replace(parameters=shown, return_annotation=signature.empty)
    return f"### `{name}{signature}`\n\n{body(inspect.getdoc(function) or '')}"


def body(doc: str) -> str:
    """A docstring's text as Markdown."""
    text = inspect.cleandoc(doc)
    blocks = re.split(r"^(Args|Attributes|Returns|Raises|Example):\n", text, flags=re.MULTILINE)
    out = [blocks[0].strip().replace("``", "`")]
    for title, block in zip(blocks[1::2], blocks[2::2], strict=True):
        block = textwrap.dedent(block).strip()
        if title == "Example":
            code = re.sub(r"  # doctest: \+SKIP", "", block)
            out.append(f"```python\n{code}\n```")
        elif title == "Returns":
            out.append(f"*Returns* {' '.join(block.split())}")
        else:
            items = [" ".join(item.split()) for item in re.split(r"\n(?=\S)", block)]
            listed = [re.sub(r"^([*\w]+): ", r"`\1`: ", item) for item in items]
            out.append(
                f"*{'Arguments' if title == 'Args' else title}*\n\n" + "\n".join(f"- {i}" for i in listed)
            )
    return "\n\n".join(part for part in out if part) + "\n"


def arguments_of(doc: str) -> dict[str, str]:
    """Meaning of each argument in a docstring."""
    block = re.split(r"^Args:\n", inspect.cleandoc(doc), flags=re.MULTILINE)[1]
    block = re.split(r"^\S", block, maxsplit=1, flags=re.MULTILINE)[0]
    items = re.split(r"\n(?=\S)", textwrap.dedent(block).strip())
    return {name: " ".join(text.split()) for name, text in (item.split(": ", 1) for item in items)}


def pages() -> dict[Path, str]:
    """Every page and its text."""
    return {
        PAGES / "python.md": python_page(),
        PAGES / "settings.md": settings_page(),
        PAGES / "training-switches.md": switches_page(),
    }


def main() -> None:
    """Writes or checks."""
    stale = [p for p, text in pages().items() if not p.exists() or p.read_text() != text]
    if "--check" in sys.argv:
        if stale:
            sys.exit(f"stale: {', '.join(p.name for p in stale)}; run `python python/reference.py`")
        return
    PAGES.mkdir(parents=True, exist_ok=True)
    for path in stale:
        path.write_text(pages()[path])


if __name__ == "__main__":
    main()
