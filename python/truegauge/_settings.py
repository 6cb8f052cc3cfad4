"""Arguments of `init()`: those that other loggers know and that have no effect here."""

from __future__ import annotations

# Name and why nothing needs it here; `docs/reference/settings.md` prints this table.
WITHOUT_EFFECT: dict[str, str] = {
    "query_api_url": "reads go where `url` points",
    "artifact_api_url": "there are no artifacts",
    "logger_id": "each process's session draws its own",
    "fork_from_run": "runs are not forked",
    "fork_at_step": "runs are not forked",
    "create_project_if_missing": "a project is there once a run names it",
    "default_dtype": "values are kept as 64-bit floats",
    "backpressure_strategy": "a full queue goes to the spool",
    "delivery_policy": "only a disk that refuses drops points, and they are counted",
    "enqueue_timeout_secs": "a full queue goes to the spool at once",
    "disk_spool_retry_timeout_secs": "a disk that refuses is tried again with the next batch",
    "connect_timeout_secs": "connecting is the delivery thread's business",
    "max_pending_requests": "one request is in flight",
    "max_msg_size": "batches are cut to what the server takes",
    "batch_max_age_secs": "points leave within a fraction of a second",
    "max_send_retries": "sending is retried until the server answers",
    "send_retry_initial_backoff_secs": "sending is retried until the server answers",
    "send_retry_max_backoff_secs": "sending is retried until the server answers",
    "ack_stall_timeout_secs": "a request has its own timeout",
    "close_spool_reserve_secs": "what is not sent within the bound of `close` is in the spool already",
    "compression": "batches are always compressed",
    "log_level": "set the level of the logger `truegauge`",
    "autoconfigure_loguru": "the standard library's logging is used",
    "rendering_error_strategy": "there is no video",
    "rendering_output_dir": "there is no video",
    "rendering_fps": "there is no video",
    "rendering_max_concurrent_encoders": "there is no video",
    "rendering_num_encoder_threads": "there is no video",
    "rendering_queue_max_size": "there is no video",
    "skip_drain_render_on_close": "there is no video",
    "rendering_close_timeout": "there is no video",
    "upload_renderings": "there is no video",
    "rendering_upload_concurrency": "there is no video",
    "rendering_upload_warn_threshold": "there is no video",
    "rendering_delete_after_upload": "there is no video",
    "rendering_upload_close_timeout": "there is no video",
    "rendering_storage": "there is no video",
}


def accept(others: dict[str, object], known: set[str]) -> None:
    """Takes arguments that have no effect here, with one debug line each.

    Args:
        others: What `init()` was given beside its own arguments.
        known: Names of its own arguments, for a hint.

    Raises:
        TypeError: A name is not known at all.
    """
    for name, value in others.items():
        if name not in WITHOUT_EFFECT:
            import difflib

            near = difflib.get_close_matches(name, [*known, *WITHOUT_EFFECT], n=1)
            hint = f", did you mean `{near[0]}`?" if near else ""
            raise TypeError(f"init() has no argument `{name}`{hint}")
        if value is not None:
            import logging

            reason = WITHOUT_EFFECT[name]
            logging.getLogger("truegauge").debug(
                "init(%s=...) is accepted and has no effect: %s", name, reason
            )
