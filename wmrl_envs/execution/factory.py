"""`make_sandbox`: a sandbox by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from wmrl_envs.errors import InvalidInput
from wmrl_envs.execution.base import Sandbox
from wmrl_envs.execution.local import KINDS, build, make_local

if TYPE_CHECKING:
    from wmrl_envs.execution.recorded.store import CacheMode


def make_sandbox(kind: str = "auto", *, cache: CacheMode = "off", store: str | Path | None = None, **kwargs: Any) -> Sandbox:
    """The sandbox of this kind; `kwargs` go to its constructor.

    Args:
        kind: "process" (embedded, no daemon), "docker", "ray" (on the nodes of a cluster), "replay" (recorded executions
            only), or "auto": the embedded one, or Docker where this machine can isolate only with it.
        cache: "off", "read" or "read-write": whether executions are remembered in `store`.
        store: folder of the recorded executions, for `cache` and for "replay".
        **kwargs: further options of the sandbox's constructor.

    Raises:
        InvalidInput: an unknown kind, mode or option, or no store to replay.
        IsolationError: "auto" found no way to isolate untrusted code.
    """
    if kind != "replay" and cache == "off":
        return _make(kind, kwargs)
    from wmrl_envs.execution.recorded.store import CachedSandbox, ExecutionStore, ReplaySandbox, check_mode

    if cache != "off":
        check_mode(cache)
    if kind == "replay":
        return build(
            ReplaySandbox, kind, kwargs | {"store": ExecutionStore(create=False, read_only=True) if store is None else store}
        )
    opened = ExecutionStore(store)  # before the sandbox, which may have processes that somebody has to end
    try:
        return CachedSandbox(_make(kind, kwargs), cache, opened)
    except BaseException:
        opened.close()
        raise


def _make(kind: str, options: dict[str, Any]) -> Sandbox:
    if kind in KINDS:
        return make_local(kind, options)
    if kind == "ray":
        from wmrl_envs.execution.cluster.ray import RaySandbox

        return build(RaySandbox, kind, options)
    raise InvalidInput(f"There is no sandbox {kind!r}: expected 'auto', 'process', 'docker', 'ray' or 'replay'.")
