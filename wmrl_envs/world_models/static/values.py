"""What the static world model knows about a value of the program under review. Unknown is always a possible answer."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Unknown:
    """Anything."""


UNKNOWN = Unknown()


@dataclass(frozen=True)
class Const:
    """A literal: str, number, bool or None. Paths below the data folder start with "$DATA_DIR"."""

    value: Any


MAX_ITEMS, MAX_TEXT = 10_000, 4000  # items of a list and characters of a text that are followed


@dataclass(eq=False)
class Seq:
    """A list or tuple whose items are known; `sure` False if their number is a guess.
    `index`: the names of a frame's columns.
    """

    items: list[Any]
    sure: bool = True
    index: bool = False

    def __post_init__(self) -> None:
        if len(self.items) > MAX_ITEMS:
            self.items, self.sure = self.items[:MAX_ITEMS], False

    def extend(self, more: list[Any]) -> None:
        """As `list.extend`, up to the bound: a program may double a list sixty times."""
        self.sure &= len(self.items) + len(more) <= MAX_ITEMS
        self.items.extend(more[: MAX_ITEMS - len(self.items)])

    def strings(self) -> list[str] | None:
        """The items if every one is a known string."""
        if all(isinstance(i, Const) and isinstance(i.value, str) for i in self.items):
            return [i.value for i in self.items]
        return None


@dataclass(eq=False)
class Dict:
    """A dictionary with known keys; `open` if there may be more."""

    items: dict[Any, Any]
    open: bool = False


@dataclass(frozen=True)
class Many:
    """Something to iterate over with so many items, which are not followed one by one; `item` is what each is like."""

    count: int
    item: Any = UNKNOWN


@dataclass(frozen=True)
class Ref:
    """A module, class or function by its dotted path."""

    path: str


@dataclass(frozen=True)
class Slice:
    """`lower:upper:step` with known whole numbers or None; `known` False for anything else (a variable)."""

    lower: int | None = None
    upper: int | None = None
    known: bool = True
    step: int | None = None


@dataclass(frozen=True)
class Rows:
    """The number of rows of some data (`len(X)`)."""

    tag: str | None


@dataclass(eq=False)
class Groups:
    """`frame.groupby(...)`: the columns that are put together."""

    columns: dict[str, Column]


@dataclass(frozen=True)
class Column:
    """One column: holds strings, holds missing values, number of distinct values (None: not known); the rest as for `Data`."""

    text: bool | None = None
    nan: bool | None = None
    date: bool = False
    card: int | None = None
    origin: str | None = None
    dtype: str | None = None
    meaning: str | None = None
    low: float | None = None


@dataclass(eq=False)
class Data:
    """A DataFrame, Series, ndarray or sparse matrix.

    Attributes:
        kind: "frame", "series" or "array".
        columns: of a frame, or None if not known; `open` if there may be more.
        rows: a tag that stands for the number of rows ("train", "test", "train+train"); None if not known.
        meaning: of predictions: "proba", "label" or "real".
        exact: `width` is exactly the number of features, not an estimate.
        filled: non-zero entries a row of a sparse matrix, if known.
        scaled: every feature is of order one.
        low: a lower bound of the values that is certain (0.0 after clipping), else None.
        mask: the outcome of a comparison, which as a subscript leaves fewer rows.
        accessor: came out of `.str`, `.dt` or `.cat`, whose methods are not those of a series.
        unnamed: a frame made of an array, whose columns are numbers.
        origin: "train:id" for that column of train.csv, "numbers" for 0, 1, 2, ...
        dtype: of a series: "int", "float", "bool", "str", "date" or "category" if it is certain.
        dims: of an array, the sizes of its dimensions behind the first.
        default_index: a frame or series whose rows are certainly labelled 0, 1, 2, ...
    """

    kind: str = "array"
    columns: dict[str, Column] | None = None
    open: bool = False
    rows: str | None = None
    nan: bool | None = None
    text: bool | None = None
    sparse: bool | None = False
    width: float | None = None
    ndim: int | None = None
    meaning: str | None = None
    low: float | None = None
    exact: bool = False
    scaled: bool = False
    filled: float | None = None
    mask: bool = False
    accessor: bool = False
    unnamed: bool = False
    origin: str | None = None
    dtype: str | None = None
    dims: tuple[int, ...] | None = None
    default_index: bool = False

    def but(self, **changes: Any) -> Data:
        """A changed copy; its columns are its own, and what a change makes doubtful is forgotten."""
        if "columns" not in changes and self.columns is not None:
            changes["columns"] = dict(self.columns)
        if "text" in changes or "kind" in changes:
            changes.setdefault("dtype", None)
        if {"ndim", "width", "kind"} & set(changes):
            changes.setdefault("dims", None)
        return replace(self, **changes)

    def missing(self, names: list[str]) -> list[str]:
        """Which of these columns a frame certainly lacks."""
        if self.kind != "frame" or self.columns is None or self.open:
            return []
        return [n for n in names if n not in self.columns]

    def select(self, names: list[str]) -> Data:
        """A frame of some of the columns."""
        known = {n: (self.columns or {}).get(n, Column()) for n in names}
        return self.but(columns=known, open=False, width=float(len(known)), **_summary(known))

    def summarised(self) -> Data:
        """`nan` and `text` recomputed from the columns."""
        if self.kind == "frame" and self.columns is not None:
            self.nan, self.text = _summary(self.columns).values()
            self.width = float(len(self.columns))
        return self


def _summary(columns: dict[str, Column]) -> dict[str, bool | None]:
    def some(values: list[bool | None]) -> bool | None:
        return True if any(v is True for v in values) else (None if any(v is None for v in values) else False)

    return {"nan": some([c.nan for c in columns.values()]), "text": some([c.text for c in columns.values()])}


@dataclass(eq=False)
class Obj:
    """An instance of a class, e.g. an estimator with its constructor arguments."""

    path: str
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    complete: bool = True  # False if a *args or **kwargs hides arguments
    problem: tuple[str, str] | None = None  # error that `fit` will raise (bad parameter value)
    fitted_on: Data | None = None
    target: Data | None = None  # what it was fitted to

    @property
    def name(self) -> str:
        """The class name."""
        return self.path.rpartition(".")[2]

    def get(self, key: str, position: int | None = None, default: Any = None) -> Any:
        """A constructor argument by keyword or position; constants come back as plain values."""
        value = self.kwargs.get(key, self.args[position] if position is not None and position < len(self.args) else default)
        return value.value if isinstance(value, Const) else value


@dataclass(frozen=True, eq=False)
class Bound:
    """An attribute of a value that is not known better (usually a method)."""

    owner: Any
    name: str


@dataclass(eq=False)
class Func:
    """A function or lambda of the program itself; `owner` is the instance whose method it is."""

    node: ast.FunctionDef | ast.Lambda
    owner: Instance | None = None


@dataclass(eq=False)
class Class:
    """A class of the program itself, with the classes of the program it inherits from."""

    node: ast.ClassDef
    parents: list[Class] = field(default_factory=list)
    closed: bool = True  # every parent is known

    def find(self, name: str) -> ast.stmt | None:
        """The statement of its body that defines a name."""
        for statement in self.node.body:
            if getattr(statement, "name", None) == name or getattr(getattr(statement, "target", None), "id", None) == name:
                return statement
            if isinstance(statement, ast.Assign) and any(getattr(t, "id", None) == name for t in statement.targets):
                return statement
        return next((found for p in self.parents if (found := p.find(name)) is not None), None)


@dataclass(eq=False)
class Instance:
    """An object of a class of the program itself, or a bare holder of attributes (`kind` None)."""

    kind: Class | None
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass
class Fit:
    """One call of `fit` for the cost estimate and the features: the model, the data that reaches it."""

    model: Any
    inputs: Data
    times: float = 1.0
    log_target: bool = False


@dataclass(frozen=True)
class Finding:
    """One predicted failure. `rule` names the check that fired; its confidence is learned per rule."""

    rule: str
    aspect: str
    line: int
    error_type: str
    message: str
    confidence: float


class ProgramEnds(Exception):
    """The program certainly stops here."""


class ProgramExits(ProgramEnds):
    """The program leaves by itself, without an error (`sys.exit()`)."""
