"""FD-DPS as published: splits, the dynamic critical path, scheduling by changing priority, and nothing else.

Source: Zeng et al., "FD-DPS", Mathematics 2022, 10(24), 4788: its abstract, and public code of its group; the full text
was not to be had. Theirs: operators are split along tensor dimensions to widen the space of model parallelism; the
critical path is regenerated as priorities change; its operators are scheduled by priority (``ready_dcp.py``). How the
splits are found is our design, their code has none: see ``split_search.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from planner.errors import InfeasibleError
from planner.schedule.drafts import Draft, Setting, dcp_schedule, finish
from planner.schedule.split_search import SplitSearch
from planner.split.types import SplitSpec


def fd_dps_draft(setting: Setting) -> Draft:
    """Search splits and schedule.

    Raises:
        InfeasibleError: if nothing could be scheduled at all.
    """
    search = SplitSearch(setting, _drafts)
    search.run()
    if search.best is None:
        raise InfeasibleError("no schedule of the graph, split or not, fits the devices' memory")
    return search.best


def _drafts(setting: Setting, splits: Sequence[SplitSpec]) -> Iterator[Draft]:
    workload = setting.workloads.build(splits)
    with suppress(InfeasibleError):
        yield finish(setting, "fd-dps", workload, dcp_schedule(setting, workload))
