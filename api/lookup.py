"""What a request speaks of: the store, and a run by its name or id."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, HTTPException, Path, Request

from foreshock.api.text import one_line
from foreshock.storage.records import Run
from foreshock.storage.store import Store

ID_PREFIX = "id:"
"""Names with a slash cannot stand in a path; every run can also be named by its id."""

RUN_HELP = "The run's name, or `id:7`."


async def the_store(request: Request) -> Store:
    """The store that the application was made with."""
    store: Store = request.app.state.store
    return store


TheStore = Annotated[Store, Depends(the_store)]


def find_run(store: Store, reference: str) -> Run:
    """The run of that name or `id:` number, or 404."""
    if reference.startswith(ID_PREFIX):
        number = reference.removeprefix(ID_PREFIX)
        run = next((run for run in store.runs() if str(run.id) == number), None)
    else:
        run = store.run(reference)
    if run is None:
        raise HTTPException(404, f"No run is called {one_line(reference)!r}; `/runs` lists them.")
    return run


def _run_in_path(store: TheStore, run: Annotated[str, Path(description=RUN_HELP)]) -> Run:
    return find_run(store, run)


TheRun = Annotated[Run, Depends(_run_in_path)]
