"""Log a training run, and see what its machine was doing meanwhile.

Example:
    >>> import truegauge as tg
    >>> run = tg.init(project_name="llm", run_name="pretrain-7b")  # doctest: +SKIP
    >>> tg.log("loss", 0.5, step=1)  # doctest: +SKIP
    >>> tg.close()  # doctest: +SKIP

Nothing here raises into a training loop: what can't be kept is counted, and warned of once per cause
as `TruegaugeWarning`. With ``init(strict=True)`` bad input raises `RefusedError` instead.
"""

from truegauge._collective import Collective
from truegauge._query import Answer, Series, query
from truegauge._run import (
    Run,
    add_tags,
    close,
    collective,
    current_run,
    flush,
    get_last_step,
    init,
    log_attributes,
    log_config,
    remove_tags,
    report_flight_recorder,
    set_description,
    set_model,
    set_parallel,
    set_tags,
    shutdown,
    step,
)
from truegauge._runs import Points, Runs, StoredRun, runs
from truegauge._step import Step
from truegauge._truegauge import (
    CloseInfo,
    FlushInfo,
    RefusedError,
    TruegaugeError,
    TruegaugeWarning,
    __version__,
    log,
)

# The same calls as other loggers spell them: any rank may log to a run here.
log_distributed = log
shutdown_logger = shutdown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from truegauge import integrations, training


def __getattr__(name: str) -> object:
    """Loads `training` and `integrations` when they are first named: most programs have no need of them."""
    if name in ("integrations", "training"):
        import importlib

        return importlib.import_module(f"truegauge.{name}")
    raise AttributeError(f"module 'truegauge' has no attribute {name!r}")


__all__ = [
    "Answer",
    "CloseInfo",
    "Collective",
    "FlushInfo",
    "Points",
    "RefusedError",
    "Run",
    "Runs",
    "Series",
    "Step",
    "StoredRun",
    "TruegaugeError",
    "TruegaugeWarning",
    "__version__",
    "add_tags",
    "close",
    "collective",
    "current_run",
    "flush",
    "get_last_step",
    "init",
    "integrations",
    "log",
    "log_attributes",
    "log_config",
    "log_distributed",
    "query",
    "remove_tags",
    "report_flight_recorder",
    "runs",
    "set_description",
    "set_model",
    "set_parallel",
    "set_tags",
    "shutdown",
    "shutdown_logger",
    "step",
    "training",
]
