"""Python's `logging` as log records of the telemetry; loaded when it is asked for, with `logging`."""

from __future__ import annotations

import logging

TYPE_CHECKING = False
if TYPE_CHECKING:
    from truegauge.training._setup import Telemetry

# Least level, and the severity of OpenTelemetry's that it becomes.
_SEVERITIES = ((50, 21), (40, 17), (30, 13), (20, 9), (10, 5), (0, 1))


class _Bridge(logging.Handler):
    def __init__(self, telemetry: Telemetry, level: int) -> None:
        super().__init__(level)
        self._telemetry = telemetry

    def emit(self, record: logging.LogRecord) -> None:
        # Our own words about a backend that is away would feed the queue that waits for it.
        if record.name == "truegauge" or record.name.startswith("truegauge."):
            return
        try:
            severity = next(severity for least, severity in _SEVERITIES if record.levelno >= least)
            attributes: dict[str, object] = {
                "code.file.path": record.pathname,
                "code.line.number": record.lineno,
                "code.function.name": record.funcName,
            }
            if record.exc_info and record.exc_info[0] is not None:
                attributes["exception.type"] = record.exc_info[0].__qualname__
                attributes["exception.message"] = str(record.exc_info[1])
                formatter = self.formatter or logging.Formatter()
                attributes["exception.stacktrace"] = formatter.formatException(record.exc_info)
            self._telemetry.log_record(
                int(record.created * 1e9),
                severity,
                # As OpenTelemetry's own handler calls it.
                "WARN" if record.levelname == "WARNING" else record.levelname,
                record.name,
                record.getMessage(),
                attributes,
            )
        except Exception:
            # A line that can't be formatted is the caller's to see, as `logging` shows such things.
            self.handleError(record)


def attach(telemetry: Telemetry, logger_name: str, level: int) -> logging.Handler:
    """Attaches a handler to a logger, unless it has one for this telemetry."""
    logger = logging.getLogger(logger_name)
    for handler in logger.handlers:
        if isinstance(handler, _Bridge) and handler._telemetry is telemetry:
            return handler
    bridge = _Bridge(telemetry, level)
    logger.addHandler(bridge)
    return bridge
