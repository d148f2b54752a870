"""Which tasks are meant: those listed, or those of a split whose data is here."""

from __future__ import annotations

from collections.abc import Sequence

from wmrl_envs.errors import DataNotBuilt, InvalidInput


def choose_tasks(
    wanted: str | Sequence[str], data_dir: str | None = None, source: str | None = None, option: str = "--tasks"
) -> tuple[list[str], list[str]]:
    """(tasks, tasks of the split that cannot be played because their data is not prepared).

    Args:
        wanted: a split, slugs with commas between, or a list of slugs.
        data_dir: folder of prepared competitions; default: `wmrl_envs.paths.data_dir()`.
        source: takes only the tasks of a split that come from there ("mledojo", "dsbench", "builtin").
        option: what the user set, for messages.

    Raises:
        DataNotBuilt: a listed task, or every task of the split, is not prepared; the message says the command.
        InvalidInput: an unknown name, or no name at all.
    """
    from wmrl_envs.tasks import list_competitions, load_competition
    from wmrl_envs.tasks.catalog import SPLITS

    if isinstance(wanted, str) and wanted not in SPLITS:
        slugs = [slug.strip() for slug in wanted.split(",") if slug.strip()]
        if not slugs:
            raise InvalidInput(f"{option} {wanted!r}: expected one of {', '.join(SPLITS)}, or slugs with commas between.")
        wanted = slugs
    if not isinstance(wanted, str):
        for slug in wanted:
            load_competition(slug, data_dir).require_ranking()
        return list(wanted), []
    prepared, missing, why = [], [], ""
    for slug in list_competitions(wanted, source):
        try:
            load_competition(slug, data_dir).require_ranking()
            prepared.append(slug)
        except DataNotBuilt as error:
            missing.append(slug)
            if not why or "builtin" in str(error):  # the one that needs no data of the user's
                why = str(error)
    if not prepared:
        raise DataNotBuilt(f"{option} {wanted!r}: none of its {len(missing)} tasks is prepared. {why}".rstrip())
    return prepared, missing
