"""Every failure the analysis can predict: id, aspect, what Python raises, how sure the rule is at its start, what Python says.

A rule fires by its id (`State.report("shapes.rows", n=3, m=4)`), and what is written between braces is filled in there. The
confidence is P(the program fails | the rule fired) before any outcome has been seen; below one half it is only a hint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wmrl_envs.world_models.static.values import Finding

INVALID = "InvalidSubmissionError"


@dataclass(frozen=True)
class Rule:
    """One row of the table; `error` and `message` may be filled in or replaced where the rule fires."""

    id: str
    aspect: str
    error: str
    confidence: float
    message: str


_TEXT = "could not convert string to float"
_NOT_NUMBERED = (
    "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are valid indices"
)
_SPARSE = "Sparse data was passed for X, but dense data is required. Use '.toarray()' to convert to a dense numpy array."
_NAN = "Input X contains NaN.\n{model} does not accept missing values encoded as NaN natively."

_ROWS = (
    # names and imports
    ("syntax", "runtime", "SyntaxError", 0.995, "{text}"),
    ("syntax.no-code", "runtime", "NoCode", 0.99, "{text}"),
    ("imports.undefined", "imports", "NameError", 0.97, "name '{name}' is not defined"),
    ("imports.name-branch", "imports", "NameError", 0.45, "name '{name}' is not defined"),
    ("imports.module", "imports", "ModuleNotFoundError", 0.96, "No module named '{name}'"),
    ("imports.name", "imports", "ImportError", 0.96, "cannot import name '{name}' from '{module}'"),
    ("imports.experimental", "imports", "ImportError", 0.96,
    "{name} is experimental and the API might change without any deprecation cycle. To use it, you need to explicitly import "
    "enable_{needed}:\nfrom sklearn.experimental import enable_{needed}"),
    # interfaces of the installed libraries
    ("api.attribute", "api", "AttributeError", 0.95, "{owner} has no attribute '{name}'{hint}"),
    ("api.keyword", "api", "TypeError", 0.97, "{label} got an unexpected keyword argument '{name}'"),
    ("api.arguments", "api", "TypeError", 0.94, "{label} {text}"),
    ("api.value", "api", "InvalidParameterError", 0.93, "{text}"),
    ("api.method", "api", "AttributeError", 0.96, "{owner} has no attribute '{name}'"),
    # files, columns, labels
    ("data.column", "data", "KeyError", 0.96, "{text}"),
    ("data.unseen-likely", "data", "ValueError", 0.3, "{text}"),
    ("data.position", "data", "KeyError", 0.95, "{name!r}"),
    ("data.row-label", "data", "KeyError", 0.93, "{text}"),
    ("data.file", "data", "FileNotFoundError", 0.95, "[Errno 2] No such file or directory: '{name}'"),
    ("data.read-only", "data", "OSError", 0.93, "[Errno 30] Read-only file system: '{name}'"),
    ("data.variable", "data", "KeyError", 0.93, "{name!r}"),
    # rows, columns and kinds of data that do not fit
    ("shapes.rows", "shapes", "ValueError", 0.96, "Found input variables with inconsistent numbers of samples: [{n}, {m}]"),
    ("shapes.beside", "shapes", "ValueError", 0.93, "{text}"),
    ("shapes.target-type", "shapes", "ValueError", 0.95, "{text}"),
    ("shapes.multi-output", "shapes", "ValueError", 0.95, "y should be a 1d array, got an array of shape ({n}, {m}) instead."),
    ("shapes.dimensions", "shapes", "ValueError", 0.94, "{text}"),
    ("shapes.text", "shapes", "ValueError", 0.95, "{prefix}" + _TEXT),
    ("shapes.dates", "shapes", "DTypePromotionError", 0.93,
    "The DType <class 'numpy.dtypes.Float64DType'> could not be promoted by <class 'numpy.dtypes.DateTime64DType'>."),
    ("shapes.accessor", "shapes", "AttributeError", 0.93, "Can only use .{name} accessor with {wanted}"),
    ("shapes.matmul", "shapes", "ValueError", 0.93,
    "matmul: Input operand 1 has a mismatch in its core dimension 0 (size {n} is different from {m})"),
    ("shapes.text-arithmetic", "shapes", "TypeError", 0.88, "{text}"),
    ("shapes.text-reduction", "shapes", "TypeError", 0.93, "{text}"),
    ("shapes.sparse", "shapes", "TypeError", 0.95, _SPARSE),
    ("shapes.sparse-likely", "shapes", "TypeError", 0.4, _SPARSE),
    ("shapes.vectorizer", "shapes", "AttributeError", 0.9, "{text}"),
    ("shapes.width", "shapes", "ValueError", 0.93, "X has {n} features, but {model} is expecting {m} features as input."),
    ("shapes.array-index", "shapes", "IndexError", 0.93, _NOT_NUMBERED),
    ("shapes.too-many-indices", "shapes", "IndexError", 0.94,
    "too many indices for array: array is 1-dimensional, but 2 were indexed"),
    # time and memory
    ("compute.memory", "compute", "MemoryError", 0.93,
    "Unable to allocate {size:.3g} GiB for an array with shape {shape} and data type float64"),
    # values at run time
    ("runtime.nan", "runtime", "ValueError", 0.95, _NAN),
    ("runtime.nan-sparse", "runtime", "ValueError", 0.9, _NAN),
    ("runtime.nan-sparse-likely", "runtime", "ValueError", 0.4, _NAN),
    ("runtime.nan-text", "runtime", "ValueError", 0.9, "np.nan is an invalid document, expected byte or unicode string."),
    ("runtime.not-fitted", "runtime", "NotFittedError", 0.93,
    "This {model} instance is not fitted yet. Call 'fit' with appropriate arguments before using this estimator."),
    ("runtime.zero", "runtime", "ZeroDivisionError", 0.95, "{text}"),
    ("runtime.operands", "runtime", "TypeError", 0.94, "{text}"),
    ("runtime.conversion", "runtime", "ValueError", 0.95, "{text}"),
    ("runtime.unpack", "runtime", "ValueError", 0.93, "{text}"),
    ("runtime.none", "runtime", "TypeError", 0.9, "{text}"),
    ("runtime.frozen", "runtime", "FrozenInstanceError", 0.95, "cannot assign to field {name!r}"),
    ("runtime.index-type", "runtime", "TypeError", 0.93, "{owner} indices must be integers or slices, not {kind}"),
    ("runtime.index", "runtime", "IndexError", 0.95, "{text}"),
    ("runtime.key", "runtime", "KeyError", 0.93, "{name!r}"),
    ("runtime.assert", "runtime", "AssertionError", 0.95, "{text}"),
    ("runtime.raise", "runtime", "Exception", 0.95, "{text}"),
    ("runtime.exit", "runtime", "SystemExit", 0.92, "{text}"),
    ("runtime.recursion", "runtime", "RecursionError", 0.93, "maximum recursion depth exceeded"),
    # what is handed in
    ("submission.absent", "submission", "SubmissionNotFoundError", 0.95, "Submission file not found"),
    ("submission.rows", "submission", "ValueError", 0.94, "{text}"),
    ("submission.columns", "submission", INVALID, 0.93, "{text}"),
    ("submission.extra", "submission", INVALID, 0.93,
    "Extra unexpected columns found in submission: {names}. Expected {wanted}."),
    ("submission.ids", "submission", INVALID, 0.93, "The ids in column {name} do not match those of the test set."),
    ("submission.nan", "submission", INVALID, 0.9, "{text}"),
    ("submission.labels", "submission", INVALID, 0.9, "predictions contain values that are not labels of the training data"),
    ("submission.shape", "submission", "ValueError", 0.94, "{text}"),
    ("submission.negative", "submission", INVALID, 0.3, "negative predictions are not allowed for this metric"),
)  # fmt: skip

RULES = {row[0]: Rule(*row) for row in _ROWS}


def finding(rule: str, line: int, error: str | None = None, certainty: float = 1.0, **values: Any) -> Finding:
    """What a rule found at a line of the program; `certainty` is P(the line is reached and its errors are not caught)."""
    row = RULES[rule]
    name = rule if certainty == 1 else rule + ".branch"
    return Finding(name, row.aspect, line, error or row.error, row.message.format(**values), row.confidence * certainty)
