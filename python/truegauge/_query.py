"""Asks the server what it knows."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_URL = "http://127.0.0.1:9494"
TIMEOUT_SECONDS = 30


def runs(
    *,
    organization: str | None = None,
    workspace: str | None = None,
    project: str | None = None,
    state: str | None = None,
    limit: int = 200,
    url: str | None = None,
    token: str | None = None,
) -> list[dict[str, Any]]:
    """Lists runs, newest first.

    Args:
        organization: Only runs of this organization.
        workspace: Only runs of this workspace.
        project: Only runs of this project.
        state: Only runs in this state: `running`, `stale`, `failed`, `finished` or `paused`.
        limit: At most so many.
        url: The server; by default `TRUEGAUGE_URL`, else `http://127.0.0.1:9494`.
        token: Bearer token; by default `TRUEGAUGE_TOKEN`.

    Returns:
        One dict per run with the keys of `GET /api/tg/v1/runs`. Times are milliseconds since the
        epoch. `pandas.DataFrame(tg.runs())` makes a table of it.

    Raises:
        TruegaugeError: The server can't be reached or refuses.

    Example:
        >>> [run["run"] for run in tg.runs(project="llm", state="running")]  # doctest: +SKIP
        ['pretrain-7b']
    """
    wanted = {"organization": organization, "workspace": workspace, "project": project}
    wanted = {key: value for key, value in wanted.items() if value is not None}
    query = {"state": state} if state else {}
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while len(found) < limit:
        page = _get(url, token, "/api/tg/v1/runs", query | ({"cursor": cursor} if cursor else {}))
        found += [r for r in page["runs"] if all(r.get(k) == v for k, v in wanted.items())]
        cursor = page.get("next")
        if not cursor:
            break
    return found[:limit]


def _get(url: str | None, token: str | None, path: str, query: dict[str, str]) -> dict[str, Any]:
    import json
    import urllib.error
    import urllib.parse
    import urllib.request

    from truegauge._truegauge import TruegaugeError

    base = (url or os.environ.get("TRUEGAUGE_URL") or DEFAULT_URL).rstrip("/")
    token = token or os.environ.get("TRUEGAUGE_TOKEN")
    if not base.startswith(("http://", "https://")):
        raise TruegaugeError(f"can't ask `{base}`: a URL starts with `http://` or `https://`")
    address = base + path + ("?" + urllib.parse.urlencode(query) if query else "")
    request = urllib.request.Request(address)  # noqa: S310 - the scheme was checked
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
            content: dict[str, Any] = json.load(answer)
            return content
    except urllib.error.HTTPError as error:
        text = error.read(4096).decode(errors="replace")
        raise TruegaugeError(f"`{address}` answered {error.code}: {_said(text)}") from None
    except urllib.error.URLError as error:
        reason = f"can't reach `{base}`: {error.reason}; start a server with `truegauge up`, or name"
        raise TruegaugeError(f"{reason} another with `url` or `TRUEGAUGE_URL`") from None
    except ValueError as error:
        reason = f"the answer of `{base}` is not JSON: {error}; is that a truegauge server?"
        raise TruegaugeError(reason) from error
    except OSError as error:
        raise TruegaugeError(f"can't ask `{address}`: {error}; try again") from error


def _said(text: str) -> str:
    """The sentence and the next step of an error's body, or the body itself."""
    import json

    try:
        error = json.loads(text)["error"]
        return "; ".join(part for part in (error["message"], error.get("hint")) if part)
    except (ValueError, KeyError, TypeError):
        return text
