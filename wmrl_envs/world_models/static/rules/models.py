"""What the methods of scikit-learn's objects give: models, transformers, encoders of labels, splitters; and of a command line
parser.
"""

from __future__ import annotations

from typing import Any

from wmrl_envs.world_models.static.rules import estimators, options, transformers
from wmrl_envs.world_models.static.rules.signatures import check_keywords
from wmrl_envs.world_models.static.state import State
from wmrl_envs.world_models.static.values import UNKNOWN, Data, Many, Obj, Seq

LABELLERS = ("LabelEncoder", "LabelBinarizer", "MultiLabelBinarizer")


def estimator_method(run: State, owner: Obj, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`owner.name(...)` of an estimator, transformer or splitter."""
    if owner.path == options.PARSER:
        return options.parser_method(run, owner, name, args, kwargs)
    if name in ("fit", "predict", "transform") and owner.path.startswith("sklearn."):
        check_keywords(run, owner.path, name, kwargs, owner.name)
    x = args[0] if args else kwargs.get("X", kwargs.get("raw_documents", UNKNOWN))
    y = args[1] if len(args) > 1 else kwargs.get("y", UNKNOWN)
    if name == "fit":
        run.fits += estimators.fit(run, owner, x, y)
        return owner
    if name in ("predict", "predict_proba", "decision_function"):
        return estimators.predict(run, owner, name, x)
    if owner.name in LABELLERS and name in ("fit_transform", "transform"):
        return _labelled(run, owner, name, x)
    if name == "fit_transform":
        estimators.check_lengths(run, x, y)
        owner.fitted_on = x if isinstance(x, Data) else Data()
        return _transformed(run, owner, x)
    if name == "transform":
        estimators.check_fitted(run, owner, owner.name)
        _check_unseen(run, owner, x)
        return _transformed(run, owner, x)
    if name == "inverse_transform" and owner.name in LABELLERS:
        return (
            owner.fitted_on.but(kind="array", rows=x.rows if isinstance(x, Data) else None, meaning="label")
            if owner.fitted_on
            else UNKNOWN
        )
    if name == "set_output":
        run.pandas_output = True
        return owner
    if name == "split" and owner.path.startswith("sklearn.model_selection."):
        if owner.name == "StratifiedKFold" and isinstance(y, Data) and y.meaning in ("continuous", "log"):
            text = "Supported target types are: ('binary', 'multiclass'). Got 'continuous' instead."
            run.report("shapes.target-type", text=text)
        run.folded = True
        places = Data("array", nan=False, text=False, ndim=1)
        return Many(int(estimators.folds_of(owner)), Seq([places, places]))
    if name == "set_params":
        owner.kwargs.update(kwargs)
        return owner
    if name == "fit_predict":
        return Data(rows=x.rows if isinstance(x, Data) else None, ndim=1)
    return UNKNOWN


def _transformed(run: State, owner: Obj, x: Any) -> Any:
    result = transformers.transform(run, owner, x)
    if run.pandas_output and isinstance(result, Data):
        return Data("frame", open=True, rows=result.rows, ndim=2, nan=result.nan, text=result.text)
    return result


def _check_unseen(run: State, owner: Obj, x: Any) -> None:
    """An encoder that knows the training rows alone may meet a level in the test rows that it has never seen."""
    lenient = owner.get("handle_unknown") if owner.name != "LabelEncoder" else None
    seen = owner.fitted_on
    new_rows = isinstance(x, Data) and seen is not None and (seen.rows, x.rows) == ("train", "test") and seen.text is not False
    if new_rows and owner.name in ("LabelEncoder", "OneHotEncoder", "OrdinalEncoder") and lenient in (None, "error"):
        label = (
            "y contains previously unseen labels"
            if owner.name == "LabelEncoder"
            else "Found unknown categories during transform"
        )
        run.report("data.unseen-likely", text=label)


def _labelled(run: State, owner: Obj, name: str, x: Any) -> Any:
    """Numbers (or columns of 0 and 1) in place of labels."""
    if name == "transform":
        estimators.check_fitted(run, owner, owner.name)
        _check_unseen(run, owner, x)
    else:
        owner.fitted_on = x if isinstance(x, Data) else Data()
    if owner.name != "LabelEncoder":
        return UNKNOWN
    return Data("array", rows=x.rows if isinstance(x, Data) else None, nan=False, text=False, ndim=1, meaning="target")
