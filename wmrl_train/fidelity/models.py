"""The world models `wmrl fidelity` can measure, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from wmrl_envs.errors import InvalidInput
from wmrl_envs.world_models.protocols import OutcomeModel

NAMES = ("static", "simulator")


def makers(
    names: str,
    *,
    engine: str,
    engine_model: str | None,
    base_url: str | None,
    layout: str,
    context_tokens: int,
    max_new_tokens: int,
    data_report: bool,
) -> dict[str, Callable[[], OutcomeModel]]:
    """Name -> a function that makes that world model anew; with several names their ensemble comes last."""
    chosen = [n.strip() for n in names.split(",") if n.strip()]
    unknown = [n for n in chosen if n not in NAMES]
    if unknown or not chosen:
        raise InvalidInput(f"--model {names!r}: expected {' or '.join(NAMES)}, or both with a comma between.")
    if "simulator" in chosen and engine_model is None:
        raise InvalidInput(
            "--model simulator needs --engine-model: a model directory, or the name a server knows the model by."
        )

    def static() -> OutcomeModel:
        from wmrl_envs.world_models.static.model import StaticWorldModel

        return StaticWorldModel()

    @cache
    def started_engine() -> Any:
        from wmrl_train.engines import make_engine

        options: dict[str, Any] = {"base_url": base_url} if base_url is not None else {}
        return make_engine(engine, str(engine_model), **options)

    def simulator() -> OutcomeModel:
        from wmrl_envs.world_models.simulator.data_report import DataReports
        from wmrl_envs.world_models.simulator.model import SimulatorWorldModel

        return SimulatorWorldModel(
            started_engine(),
            layout=layout,  # type: ignore[arg-type]
            context_tokens=context_tokens,
            max_new_tokens=max_new_tokens,
            report=DataReports() if data_report else None,
        )

    available: dict[str, Callable[[], OutcomeModel]] = {"static": static, "simulator": simulator}
    result = {n: available[n] for n in chosen}
    if len(result) > 1:
        from wmrl_envs.world_models.ensemble import EnsembleWorldModel

        parts = list(result.values())
        result["ensemble"] = lambda: EnsembleWorldModel([make() for make in parts])
    return result
