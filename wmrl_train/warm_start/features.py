"""The feature part of a program: what it does to the columns, or to the pictures, before the estimator."""

from __future__ import annotations

from typing import Any

from wmrl_train.warm_start.draft import Draft

SCALERS = ("StandardScaler", "StandardScaler", "MinMaxScaler", "QuantileTransformer", "RobustScaler")
EDGE_PX = 28  # height of every built-in picture


def picture_steps(draft: Draft) -> list[str]:
    """Steps before the estimator for a picture task; may add lines that transform X and T."""
    if draft.chance(0.3):
        draft.body.append("X, T = X / 255, T / 255")
    draft.body += _picture_lines(draft)
    steps = [draft.call("preprocessing", draft.choose(["StandardScaler", "MinMaxScaler"]))] if draft.chance(0.35) else []
    if draft.chance(0.5):
        steps.append(draft.call("decomposition", "PCA", n_components=draft.choose([5, 15, 40, 80])))
    if draft.fault == "column":
        draft.body.append("X = X[num]")
    return steps


def _picture_lines(draft: Draft) -> list[str]:
    match draft.choose(["none", "none", "pool", "threshold", "shift", "gradient"]):
        case "pool":
            mean = f"a.reshape(len(a), {EDGE_PX // 2}, 2, -1, 2).mean((2, 4)).reshape(len(a), -1)"
            return [f"X, T = ({mean} for a in (X, T))"]
        case "threshold":
            return [f"X, T = (a > a.max() * {draft.choose([0.3, 0.5])} for a in (X, T))"]
        case "gradient":
            return [f"X, T = (np.diff(a.reshape(len(a), {EDGE_PX}, -1), axis=1).reshape(len(a), -1) for a in (X, T))"]
        case "shift":
            shifted = f"np.roll(I, 1, {draft.choose([1, 2])}).reshape(X.shape)"
            return [f"I = X.reshape(len(X), {EDGE_PX}, -1)", f"X = np.r_[X, {shifted}]", "y = np.r_[y, y]"]
    return []


def column_steps(draft: Draft) -> list[str]:
    """One `cols(...)` step for a task with columns; adds lines for new features and for each part of the step."""
    has_length = _new_features(draft)
    parts = _number_part(draft, has_length) + _category_part(draft) + _text_parts(draft)
    if not draft.brief.text and not parts:
        parts = [("'passthrough'", "num")] if draft.brief.num else [(_one_hot(draft, {}), "cat")]
    elif not parts:
        parts = [_vectorizer_part(draft, 0)]
    if len(parts) > 2:
        keep = 2 if len(parts) == 3 else 1 + draft.chance(0.6)
        parts = parts[:1] + draft.rng.sample(parts[1:], keep)
    listed = []
    for name, (transformer, columns) in zip("abcd", parts, strict=False):
        if transformer.startswith("'"):
            listed.append(f"({transformer}, {columns})")
        else:
            draft.body.append(f"{name} = {transformer}")
            listed.append(f"({name}, {columns})")
    return [f"cols({', '.join(listed)})"]


def _new_features(draft: Draft) -> bool:
    """Lines that add columns; returns whether the length of a text is among them."""
    brief, body = draft.brief, draft.body
    if brief.date and draft.chance(0.6):
        part = draft.choose(["dayofweek", "month", "year", "dayofyear"])
        body += [
            "for f in (X, T):",
            f"    f['{part}'] = pd.to_datetime(f[{draft.column('date', 0)}]).dt.{part}",
            f"num += ['{part}']",
        ]
    if len(brief.num) > 1 and draft.chance(0.3):
        i, j = draft.rng.sample(range(min(6, len(brief.num))), 2)
        left, right = draft.column("num", i), draft.column("num", j)
        if draft.fault == "column":
            right = f"'{brief.num[j]}s'" if draft.by_name else f"num[{len(brief.num) + j}]"
        combined = draft.choose(["/ (1 + f[{}])", "* (1 + f[{}])", "- f[{}]"]).format(right)
        body += ["for f in (X, T):", f"    f['r'] = f[{left}] {combined}", "num += ['r']"]
    elif brief.num and draft.chance(0.2):
        body += ["for f in (X, T):", "    f[num] = np.log1p(f[num].clip(lower=0))"]
    if brief.text and draft.chance(0.25):
        body += ["for f in (X, T):", f"    f['len'] = f[{draft.column('text', 0)}].str.len()", "num += ['len']"]
        return True
    return False


def _number_part(draft: Draft, has_length: bool) -> list[tuple[str, str]]:
    brief = draft.brief
    if not (brief.num or has_length) or not draft.chance(0.88):
        return []
    steps = []
    has_nan = any(column in brief.nan for column in brief.num)
    if has_nan and draft.fault != "nan" and (not draft.estimator.takes_nan or draft.chance(0.5)):
        indicator = {"add_indicator": True} if draft.chance(0.2) else {}
        steps.append(draft.call("impute", "SimpleImputer", strategy=draft.choose(["'median'", "'mean'"]), **indicator))
    if draft.chance(0.6):
        steps.append(draft.call("preprocessing", draft.choose(SCALERS)))
    match steps:
        case []:
            return [("'passthrough'", "num")]
        case [step]:
            return [(step, "num")]
    return [(f"make_pipeline({', '.join(steps)})", "num")]


def _category_part(draft: Draft) -> list[tuple[str, str]]:
    if not draft.brief.cat or not draft.chance(0.85):
        return []
    kinds = ["one-hot", "one-hot", "one-hot", "ordinal", "target" if draft.brief.target in ("reg", "bin") else "ordinal"]
    match draft.choose(kinds):
        case "target":
            return [(draft.call("preprocessing", "TargetEncoder"), "cat")]
        case "ordinal":
            keywords = {"handle_unknown": "'use_encoded_value'", "unknown_value": -1, "encoded_missing_value": -2}
            return [(draft.call("preprocessing", "OrdinalEncoder", **keywords), "cat")]
    frequency = {"min_frequency": draft.choose([5, 20])} if draft.chance(0.25) else {}
    return [(_one_hot(draft, frequency), "cat")]


def _one_hot(draft: Draft, keywords: dict[str, Any]) -> str:
    sparse = {"sparse_output": False} if draft.needs_dense or draft.chance(0.15) else {}
    return draft.call("preprocessing", "OneHotEncoder", handle_unknown="'ignore'", **sparse, **keywords)


def _text_parts(draft: Draft) -> list[tuple[str, str]]:
    texts = list(range(len(draft.brief.text)))
    if draft.brief.category != "text":  # a text column of a tabular task: sometimes, and one only
        texts = draft.rng.sample(texts, min(len(texts), int(draft.chance(0.5))))
    return [_vectorizer_part(draft, index) for index in texts]


def _vectorizer_part(draft: Draft, index: int) -> tuple[str, str]:
    name = draft.choose(["TfidfVectorizer"] * 3 + ["CountVectorizer"])
    keywords: dict[str, Any] = {}
    if draft.chance(0.35):
        keywords |= {"analyzer": "'char_wb'", "ngram_range": draft.choose(["(1, 3)", "(2, 4)", "(2, 5)"])}
    elif draft.chance(0.5):
        keywords["ngram_range"] = draft.choose(["(1, 2)", "(1, 3)"])
    if draft.chance(0.3):
        keywords["min_df"] = draft.choose([2, 5, 20])
    if draft.chance(0.4) or "analyzer" in keywords:
        keywords["max_features"] = draft.choose([100, 1000, 5000, 20000])
    if name == "TfidfVectorizer" and draft.chance(0.3):
        keywords["sublinear_tf"] = True
    if draft.chance(0.15):
        keywords["stop_words"] = "'english'"
    vectorizer = draft.call("feature_extraction.text", name, **keywords)
    suits_few = draft.estimator.name.startswith(("Random", "Extra", "KNeighbors", "MLP", "Decision"))
    reduce = draft.needs_dense or draft.chance(0.2) or (suits_few and draft.chance(0.6))
    if reduce and draft.fault != "sparse":
        svd = draft.call("decomposition", "TruncatedSVD", n_components=draft.choose([5, 20, 60]))
        vectorizer = f"make_pipeline({vectorizer}, {svd})"
    if draft.fault == "column":
        column = f"'{draft.brief.text[index].title()}'" if draft.by_name else f"text[{len(draft.brief.text)}]"
        return vectorizer, column
    return vectorizer, draft.column("text", index)
