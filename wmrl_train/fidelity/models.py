"""The world models `wmrl fidelity` can measure, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from wmrl_envs.errors import InvalidInput
from wmrl_envs.world_models.protocols import OutcomeModel

NAMES = ("low_fidelity", "static", "stacked", "simulator")
STANDARD_ROWS = 500
TEST_SHARE = 0.6  # test rows for each training row of a reduced copy, at most STANDARD_TEST_ROWS
STANDARD_TEST_ROWS = 300


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
    sizes: Sequence[int] = (STANDARD_ROWS,),
) -> dict[str, Callable[[], OutcomeModel]]:
    """Name -> a function that makes that world model anew.

    "low_fidelity" is made for each of the `sizes` (training rows), "stacked" of the largest one and the static model; what one
    of them has run none runs again. Of "static" and "simulator" together the ensemble comes last.
    """
    chosen = [n.strip() for n in names.split(",") if n.strip()]
    unknown = [n for n in chosen if n not in NAMES]
    if unknown or not chosen:
        raise InvalidInput(f"--model {names!r}: expected {', '.join(NAMES)}, or several with commas between.")
    if not sizes or any(rows < 10 for rows in sizes):
        raise InvalidInput(f"--sizes {','.join(map(str, sizes))}: expected numbers of training rows of at least 10.")
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

    @cache
    def reduced(rows: int) -> Any:
        from wmrl_envs.world_models.low_fidelity import LowFidelityWorldModel

        return LowFidelityWorldModel(rows, max(10, min(STANDARD_TEST_ROWS, round(TEST_SHARE * rows))))

    def low_fidelity(rows: int) -> OutcomeModel:
        return reduced(rows).anew()

    def stacked() -> OutcomeModel:
        from wmrl_envs.world_models.stacked import StackedWorldModel

        return StackedWorldModel([low_fidelity(max(sizes)), static()])

    available: dict[str, Callable[[], OutcomeModel]] = {"static": static, "simulator": simulator, "stacked": stacked}
    result: dict[str, Callable[[], OutcomeModel]] = {}
    for name in chosen:
        if name == "low_fidelity":
            result |= {f"low fidelity, {rows} rows": partial(low_fidelity, rows) for rows in sizes}
        else:
            result[name] = available[name]
    if set(chosen) == {"static", "simulator"}:
        from wmrl_envs.world_models.ensemble import EnsembleWorldModel

        parts = list(result.values())
        result["ensemble"] = lambda: EnsembleWorldModel([make() for make in parts])
    return result
