"""What lies in a data folder: tables with their rows, columns and examples, arrays, folders of pictures. By looking only.

Nothing is read whole but small files: columns come from the head of a file, row counts from a streaming count of line ends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import pandas as pd

HEAD_ROWS = 20_000  # rows that decide the type of a column
WHOLE_JSON_BYTES = 32 << 20  # a JSON array up to this size is parsed whole, of a larger one only the head
_HEAD_BYTES = 8 << 20
_CHUNK = 4 << 20
_MANY_FILES = 12  # a folder with more files of one kind is summed up
_PICTURES = frozenset({".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".dcm"})
_TABLES = frozenset({".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet"})


@dataclass(frozen=True)
class Entry:
    """One file, or one folder of files of a kind.

    Attributes:
        name: relative to the data folder, with "/" at the end of a folder.
        kind: "table", "array", "folder" or "file".
        rows: rows of a table, first dimension of an array, files of a folder; None if unknown.
        columns: column -> "int" | "float" | "str" | "bool"; for arrays name -> dtype and shape.
        examples: column -> one example, for string columns.
        missing: columns of a table in which values are missing, as far as its head says (None: no table).
        note: what else there is to say.
    """

    name: str
    kind: str
    size_bytes: int
    rows: int | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    missing: tuple[str, ...] | None = None


def inventory(folder: Path) -> list[Entry]:
    """Every file under `folder`, tables first, then by name; folders with many files of a kind as one entry."""
    entries = list(_walk(folder, folder))
    order = {"table": 0, "array": 1, "folder": 2, "file": 3}
    first = ("train", "test", "sample_submission")

    def place(entry: Entry) -> tuple[int, int, int, str]:
        stem = entry.name.rsplit(".", 1)[0]
        return order[entry.kind], first.index(stem) if stem in first else len(first), entry.name.count("/"), entry.name

    return sorted(entries, key=place)


def _walk(folder: Path, root: Path) -> Iterator[Entry]:
    private = (root.parent / "private").resolve()
    by_kind: dict[str, list[Path]] = {}
    with os.scandir(folder) as found:
        for item in sorted(found, key=lambda e: e.name):
            path = Path(item.path)
            if item.name.startswith(".") or (item.is_symlink() and path.resolve().is_relative_to(private)):
                continue
            if item.is_dir():
                yield from _walk(path, root)
            elif item.is_file():
                by_kind.setdefault(path.suffix.lower(), []).append(path)
    for suffix, paths in sorted(by_kind.items()):
        few = len(paths) <= _MANY_FILES and suffix not in _PICTURES
        if few:
            yield from (inspect(path, root) for path in paths)
        else:
            yield _many(folder, suffix, paths, root)


def _many(folder: Path, suffix: str, paths: list[Path], root: Path) -> Entry:
    relative = folder.relative_to(root).as_posix()
    name = "./" if relative == "." else relative + "/"
    size = sum(path.stat().st_size for path in paths)
    what = f"{suffix or 'nameless'} files, e.g. {', '.join(p.name for p in paths[:2])}"
    columns: Mapping[str, str] = {}
    if suffix in _PICTURES:
        what += _picture_size(paths[0])
    elif suffix in _TABLES:
        columns = inspect(paths[0], root).columns
        what += ", each a table"
    return Entry(name, "folder", size, len(paths), columns, note=what)


def _picture_size(path: Path) -> str:
    try:
        from PIL import Image

        with Image.open(path) as picture:
            return f"; the first is {picture.width} x {picture.height} pixels, mode {picture.mode}"
    except (ImportError, OSError, ValueError):
        return ""


def inspect(path: Path, root: Path) -> Entry:
    """Describe one file. A file that cannot be parsed is listed with a note, never an error."""
    name, size, suffix = path.relative_to(root).as_posix(), path.stat().st_size, path.suffix.lower()
    try:
        if suffix in (".csv", ".tsv"):
            return _delimited(path, name, size, "\t" if suffix == ".tsv" else ",")
        if suffix in (".json", ".jsonl", ".ndjson"):
            return _json(path, name, size)
        if suffix == ".parquet":
            return _parquet(path, name, size)
        if suffix in (".npz", ".npy"):
            return _arrays(path, name, size)
    except (ValueError, OSError, KeyError, RecursionError, UnicodeDecodeError) as error:
        return Entry(name, "file", size, note=f"not readable as {suffix[1:]} ({type(error).__name__})")
    return Entry(name, "file", size)


def _delimited(path: Path, name: str, size: int, separator: str) -> Entry:
    import pandas as pd

    head = pd.read_csv(path, sep=separator, nrows=HEAD_ROWS, encoding_errors="replace", low_memory=False)
    return _table(name, size, count_rows(path) if len(head) >= HEAD_ROWS else len(head), head)


def count_rows(path: Path) -> int:
    """Records of a delimited file after its header, by streaming: line ends inside quotes do not count."""
    lines, inside, last = 0, 0, b"\n"
    with path.open("rb") as f:
        while chunk := f.read(_CHUNK):
            if b'"' in chunk or inside:
                pieces = chunk.split(b'"')
                lines += sum(piece.count(b"\n") for piece in pieces[inside::2])
                inside = (inside + len(pieces) - 1) % 2
            else:
                lines += chunk.count(b"\n")
            last = chunk[-1:]
    return lines - (last == b"\n")


def _table(name: str, size: int, rows: int | None, head: pd.DataFrame) -> Entry:
    columns = {str(c): column_type(head[c]) for c in head.columns}
    examples = {}
    for column in head.columns:
        values = head[column].dropna()
        if columns[str(column)] == "str" and len(values):
            examples[str(column)] = str(values.iloc[0])
    missing = tuple(str(c) for c in head.columns if head[c].isna().any())
    return Entry(name, "table", size, rows, columns, examples, missing=missing)


def column_type(column: pd.Series) -> str:
    """int, float, bool or str."""
    return {"i": "int", "u": "int", "f": "float", "b": "bool"}.get(column.dtype.kind, "str")


def _json(path: Path, name: str, size: int) -> Entry:
    import pandas as pd

    with path.open("rb") as f:
        first = f.read(64).lstrip()[:1]
        if path.suffix.lower() in (".jsonl", ".ndjson") or (first == b"{" and _second_line_is_object(f)):
            f.seek(0)
            records = [json.loads(line) for line in f.readlines(_HEAD_BYTES)[:HEAD_ROWS] if line.strip()]
            return _table(name, size, count_rows(path) + 1, pd.DataFrame(records))
    if size <= WHOLE_JSON_BYTES:
        value = json.loads(path.read_text(encoding="utf-8", errors="replace"))
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return _table(name, size, len(value), pd.DataFrame(value[:HEAD_ROWS]))
        keys = ", ".join(list(value)[:8]) if isinstance(value, dict) else ""
        return Entry(
            name, "file", size, note=f"JSON {type(value).__name__} of {len(value)} items" + (f": {keys}" if keys else "")
        )
    if first == b"[":
        return _table(name, size, None, pd.DataFrame(list(_first_records(path))))
    return Entry(name, "file", size, note="JSON object")


def _second_line_is_object(f: BinaryIO) -> bool:
    f.seek(0)
    first, second = f.readline(_HEAD_BYTES).strip(), f.readline(_HEAD_BYTES).strip()
    return first.endswith(b"}") and second.startswith(b"{")


def _first_records(path: Path, at_most: int = 100) -> Iterator[dict[str, Any]]:
    """The first objects of a large JSON array, without reading on."""
    with path.open(encoding="utf-8", errors="replace") as f:
        text = f.read(_HEAD_BYTES)
    decoder, place = json.JSONDecoder(), text.index("[") + 1
    for _ in range(at_most):
        while place < len(text) and text[place] in " \r\n\t,":
            place += 1
        try:
            record, place = decoder.raw_decode(text, place)
        except ValueError:  # cut off here
            return
        if isinstance(record, dict):
            yield record


def _parquet(path: Path, name: str, size: int) -> Entry:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        return Entry(name, "file", size, note="parquet table; install pyarrow to see its columns")
    with pq.ParquetFile(path) as f:
        rows = f.metadata.num_rows
        head = next(f.iter_batches(batch_size=100), None)
        frame = head.to_pandas() if head is not None else f.schema_arrow.empty_table().to_pandas()
    return _table(name, size, rows, frame)


def _arrays(path: Path, name: str, size: int) -> Entry:
    import zipfile

    headers = {}
    if path.suffix.lower() == ".npy":
        with path.open("rb") as f:
            headers[path.stem] = _npy_header(f)
    else:
        with zipfile.ZipFile(path) as z:
            for member in z.namelist():
                with z.open(member) as g:
                    headers[member.removesuffix(".npy")] = _npy_header(g)
    rows = next(iter(headers.values()))[0] if headers else ()
    columns = {key: f"{dtype} {shape}" for key, (shape, dtype) in headers.items()}
    return Entry(name, "array", size, rows[0] if rows else None, columns)


def _npy_header(f: Any) -> tuple[tuple[int, ...], str]:
    """(shape, dtype) of a .npy stream; object arrays are not unpickled."""
    from numpy.lib import format as npy

    version = npy.read_magic(f)
    shape, _, dtype = npy.read_array_header_1_0(f) if version == (1, 0) else npy.read_array_header_2_0(f)
    return tuple(shape), str(dtype)
