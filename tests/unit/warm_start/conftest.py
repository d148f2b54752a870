import pytest

from wmrl_train.warm_start.brief import Brief


@pytest.fixture(scope="session")
def briefs() -> list[Brief]:
    """Invented tasks of every kind of target and category."""
    table = {"num": ("age", "fare", "hour"), "cat": ("city", "day"), "nan": ("age",)}
    return [
        Brief("alpha-rent", "tabular", "rmsle", "reg", 900, **table, date=("when",)),
        Brief("beta-default", "tabular", "roc_auc", "bin", 3000, **table),
        Brief("gamma-speed", "tabular", "qwk", "ord", 9000, **table),
        Brief("delta-mood", "text", "rmse", "reg", 800, text=("words",)),
        Brief("epsilon-genre", "text", "mean_column_auc", "mlabel", 800, num=("year", "votes"), text=("title", "plot")),
        Brief("zeta-digits", "image", "log_loss", "multi", 700),
    ]
