"""The `sklearn` scaffold: a prelude that loads and splits a competition's columns, so that a small policy writes only the
model.

`PRELUDE` is trusted code. The sandbox executes it before the agent's program, in the same namespace; `describe` says what
it will find there, computed from the public files by our own code (the two are tested to agree).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wmrl_envs.errors import InvalidInput

if TYPE_CHECKING:
    import pandas as pd

    from wmrl_envs.tasks.competition import Competition

NAMES = ("X", "T", "y", "num", "cat", "text", "date", "np", "pd", "os", "warnings", "make_pipeline", "cols", "save")
"""Names the prelude gives to the program. X, T: train and test features; y: target; num, cat, text, date: column names by kind.
"""

NEEDED_FILES = ("train.csv", "test.csv", "sample_submission.csv")

_READ = r"""
import os
import warnings

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer as cols
from sklearn.pipeline import make_pipeline

warnings.filterwarnings("ignore")
np.random.seed(0)  # equal programs give equal results

_data, _metric, _rows = os.environ["DATA_DIR"], os.environ["METRIC"], int(os.environ.get("MAX_ROWS") or 10**9)
X, T = pd.read_csv(_data + "/train.csv"), pd.read_csv(_data + "/test.csv")
_sample = pd.read_csv(_data + "/sample_submission.csv", nrows=1).columns
_key, _targets = _sample[0], [c for c in X if c not in T]
_id = T.pop(_key)
y = X[_targets[0] if len(_targets) == 1 else _targets][:_rows]
X = X.drop(columns=[_key, *_targets])

"""
_KINDS = r"""num = [c for c in X if X[c].dtype.kind in "ifb"]
cat, text, date = [], [], []
for _c in X:
    if _c not in num:
        _s = X[_c][:1000].dropna().astype(str)  # the kind of a column does not depend on MAX_ROWS
        if _s.str.fullmatch(r"\d{4}-\d\d-\d\d").all():
            date.append(_c)
        elif _s.str.len().mean() > 11 and _s.nunique() > 0.3 * len(_s):
            text.append(_c)
        else:
            cat.append(_c)
"""
_REST = r'''X = X[:_rows].copy()
for _c in text:
    X[_c], T[_c] = X[_c].fillna(""), T[_c].fillna("")
if os.path.exists(_data + "/images.npz"):  # pictures: X and T are arrays of shape (rows, pixels)
    with np.load(_data + "/images.npz") as _z:
        X, T = (_z[k].reshape(len(_z[k]), -1).astype("float32")[:n] for k, n in (("train", _rows), ("test", None)))


def save(p):
    """Write predictions, one row a test row: values, labels, or the probabilities that predict_proba gives."""
    p = np.asarray(p)
    if len(p) != len(_id):
        raise ValueError(f"save: expected {len(_id)} predictions, one for each test row, got {len(p)}")
    if _metric == "log_loss":
        out = pd.DataFrame(p, columns=np.unique(y)).reindex(columns=_sample[1:], fill_value=0.0)
    elif _metric == "map_at_k" and p.ndim == 2:
        best = np.unique(y)[np.argsort(-p, 1)[:, :3]]
        out = pd.DataFrame({_targets[0]: [" ".join(map(str, row)) for row in best]})
    elif len(_targets) > 1:
        out = pd.DataFrame(p, columns=_targets)
    else:
        out = pd.DataFrame({_targets[0]: p[:, 1] if _metric == "roc_auc" and p.ndim == 2 else p.reshape(len(_id))})
    out.insert(0, _key, _id)
    out.to_csv(os.environ["SUBMISSION_PATH"], index=False)
'''
PRELUDE = _READ + _KINDS + _REST


def overview(names: Mapping[str, Any]) -> str:
    """What an agent has to know to write the rest of a program; `names` is what `describe` gives."""
    kinds = "\n".join(f"{kind} = {list(names[kind])}" for kind in ("num", "cat", "text", "date"))
    return (
        "Scaffold. Your program continues one that has loaded and split the data. Defined already: "
        f"{', '.join(names['names'])}.\nX, T: features of the training and of the test rows; y: target; "
        f"num, cat, text, date: column names by kind.\n{kinds}\n"
        "End with save(predictions), one row for each row of T, in order; it writes the submission."
    )


def prelude(kinds: Mapping[str, Sequence[str]] | None = None) -> str:
    """The prelude; with `kinds` ("num", "cat", "text", "date" -> columns, of `describe`) one that takes them from there.

    A reduced copy of the data needs that: of fewer rows other columns would look like free text.
    """
    if kinds is None:
        return PRELUDE
    given = "; ".join(f"{kind} = {[str(c) for c in kinds[kind]]!r}" for kind in ("num", "cat", "text", "date"))
    return f"{_READ}{given}\n{_REST}"


def environment(competition: Competition, max_rows: int | None = None) -> dict[str, str]:
    """Variables the prelude reads besides DATA_DIR and SUBMISSION_PATH: METRIC, and MAX_ROWS (training rows) if given."""
    _check_max_rows(max_rows)
    return {"METRIC": competition.spec.metric_name} | ({} if max_rows is None else {"MAX_ROWS": str(max_rows)})


def describe(competition: Competition, max_rows: int | None = None) -> dict[str, Any]:
    """What the prelude will have loaded for `competition` with at most `max_rows` training rows.

    Returns:
        `num`, `cat`, `text`, `date`: column names by kind (all empty for pictures); `nan`: columns with a missing value
        in train or test; `levels`: number of values of each `cat` column; `rows`, `test_rows`; `target`: target columns;
        `target_kind`: "reg", "bin", "multi", "ord" (ordered classes) or "mlabel" (several targets); `image`: (height, width) or
            None; `names`: every name the program may use.

    Raises:
        InvalidInput: the competition has no train.csv, test.csv and sample_submission.csv of the plain shape.
    """
    _check_max_rows(max_rows)
    folder = Path(competition.public_dir)
    missing = [name for name in NEEDED_FILES if not (folder / name).is_file()]
    if missing:
        raise InvalidInput(
            f"scaffold='sklearn' needs {', '.join(NEEDED_FILES)}; {competition.slug!r} has no {', '.join(missing)}: "
            "use scaffold=None (whole scripts) for this competition."
        )
    version = (folder / "train.csv").stat().st_mtime_ns
    return dict(_describe(folder, version, competition.spec.metric_name, max_rows))


def _check_max_rows(max_rows: int | None) -> None:
    if max_rows is not None and (isinstance(max_rows, bool) or not isinstance(max_rows, int) or max_rows < 1):
        raise InvalidInput(f"max_rows={max_rows!r}: expected a whole number of training rows of at least 1, or None for all.")


@lru_cache(maxsize=256)
def _describe(folder: Path, _version: int, metric: str, max_rows: int | None) -> dict[str, Any]:
    import numpy as np
    import pandas as pd

    train, test = pd.read_csv(folder / "train.csv"), pd.read_csv(folder / "test.csv")
    key = pd.read_csv(folder / "sample_submission.csv", nrows=1).columns[0]
    target = [c for c in train if c not in test]
    found: dict[str, Any] = {"num": [], "cat": [], "text": [], "date": [], "nan": [], "levels": {}, "image": None}
    if (folder / "images.npz").is_file():
        with np.load(folder / "images.npz") as images:
            found["image"] = tuple(int(n) for n in images["test"].shape[1:3])
    else:
        for column in train.columns.drop([key, *target]):
            kind = _kind(train[column])
            found[kind].append(column)
            if kind == "cat":
                found["levels"][column] = int(train[column][:max_rows].nunique(dropna=False))
            if kind != "text" and (train[column][:max_rows].isna().any() or test[column].isna().any()):
                found["nan"].append(column)
    found |= {"rows": len(train[:max_rows]), "test_rows": len(test), "target": target, "names": list(NAMES)}
    return found | {"target_kind": _target_kind(train[target], metric)}


def _target_kind(target: pd.DataFrame, metric: str) -> str:
    if target.shape[1] > 1:
        return "mlabel"
    column = target.iloc[:, 0]
    if metric == "qwk":
        return "ord"
    if column.dtype.kind == "f":
        return "reg"
    return "bin" if column.nunique() == 2 else "multi"


def _kind(column: pd.Series) -> str:
    """`num`, `date`, `text` or `cat`, as the prelude tells them apart."""
    if column.dtype.kind in "ifb":
        return "num"
    values = column[:1000].dropna().astype(str)
    if values.str.fullmatch(r"\d{4}-\d\d-\d\d").all():
        return "date"
    return "text" if values.str.len().mean() > 11 and values.nunique() > 0.3 * len(values) else "cat"
