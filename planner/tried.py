"""Plans that could not be run, as the profile remembers them.

Where plans are run before one is chosen, one that fails is out. Who plans later with the same profile and runs nothing
would else choose it, since its pieces alone look fast.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence

from planner.cost.profile import Measurement, ProfileKey, ProfileTable, plan_key
from planner.runtime.values import ort_version
from planner.schedule.drafts import Draft, segment_keys


def draft_key(draft: Draft) -> ProfileKey:
    """Profile key of a draft as a whole: which segments run on which device, in order."""
    names = [draft.cluster.devices[segment.device].name for segment in draft.cut.segments]
    lines = [" ".join((name, *key)) for name, key in zip(names, segment_keys(draft), strict=True)]
    first = draft.cluster.devices[draft.cut.segments[0].device if lines else 0]
    return ProfileKey(first.kind, first.type, plan_key(hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]))


def could_not_run(draft: Draft, table: ProfileTable) -> bool:
    """Whether the draft failed when it was last run."""
    found = table.entries.get(draft_key(draft))
    return found is not None and found.ns == 0


def outcomes(tried: Sequence[Draft], failed: Collection[str], table: ProfileTable) -> Mapping[ProfileKey, Measurement]:
    """What the profile should remember of drafts that were run: failures, and that an earlier one is overcome.

    Args:
        tried: drafts that were run.
        failed: planners of those that failed.
        table: the profile before that.
    """
    found = {}
    for draft in tried:
        if draft.planner in failed:
            found[draft_key(draft)] = Measurement(0, 1, ort_version())
        elif could_not_run(draft, table):
            found[draft_key(draft)] = Measurement(max(draft.step_ns, 1), 1, ort_version())
    return found
