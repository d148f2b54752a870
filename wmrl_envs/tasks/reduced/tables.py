"""Tables of a data folder, read once for looking and once for copying: cells stay as they are written."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")


@dataclass(frozen=True, eq=False)
class Table:
    """One table on disk. `name`: relative to the data folder."""

    path: Path
    name: str

    @property
    def stem(self) -> str:
        return self.path.stem.lower()

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Its rows as pandas reads them. Raises ValueError or OSError if it is no table."""
        import pandas as pd

        match self.path.suffix.lower():
            case ".csv" | ".tsv":
                return pd.read_csv(self.path, sep=self._separator, low_memory=False, encoding_errors="replace")
            case ".parquet":
                return pd.read_parquet(self.path)
            case _:
                return pd.DataFrame(self._records())

    def write(self, rows: np.ndarray, to: Path) -> None:
        """Write the rows at these positions in the format of this table."""
        import pandas as pd

        match self.path.suffix.lower():
            case ".csv" | ".tsv":
                # Every byte is a letter of Latin-1, so that what is written is what was read, whatever its encoding.
                raw = pd.read_csv(self.path, sep=self._separator, dtype=str, na_filter=False, encoding="latin-1")
                raw.iloc[rows].to_csv(to, sep=self._separator, index=False, encoding="latin-1")
            case ".parquet":
                self.frame.iloc[rows].to_parquet(to, index=False)
            case ".json":
                records = self._records()
                to.write_text(json.dumps([records[i] for i in rows]), encoding="utf-8")
            case _:
                records = self._records()
                to.write_text("".join(json.dumps(records[i]) + "\n" for i in rows), encoding="utf-8")

    @property
    def _separator(self) -> str:
        return "\t" if self.path.suffix.lower() == ".tsv" else ","

    def _records(self) -> list[dict]:
        text = self.path.read_text(encoding="utf-8")
        if self.path.suffix.lower() == ".json":
            value = json.loads(text)
            if not (isinstance(value, list) and all(isinstance(record, dict) for record in value)):
                raise ValueError("a JSON file that is no list of records")
            return value
        return [json.loads(line) for line in text.split("\n") if line.strip()]


def tables_in(folder: Path, files: list[Path]) -> list[Table]:
    """The files that are tables and can be read, in order of their names."""
    found = []
    for path in sorted(files):
        if path.suffix.lower() in SUFFIXES:
            table = Table(path, path.relative_to(folder).as_posix())
            try:
                len(table.frame)
            except (ValueError, OSError, ImportError, RecursionError):
                continue
            found.append(table)
    return found


def write_npz(path: Path, to: Path, rows_of: Callable[[str, int], np.ndarray | None]) -> None:
    """Copy an archive of arrays; `rows_of(name, length)` says which rows of an array are kept, None for all."""
    import numpy as np

    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    for name, values in arrays.items():
        rows = rows_of(name, len(values)) if values.ndim else None
        arrays[name] = values if rows is None else values[rows]
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # not compressed: it is read many times
    to.write_bytes(buffer.getvalue())
