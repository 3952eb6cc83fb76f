"""The best schedule that a counted amount of work finds: all fast rivals, then search from the best of them.

Small graphs are improved by tabu search on the whole (``tabu.py``); large ones window by window (``windows.py``). The
schedule that comes out is the best one seen; where it meets the lower bound, the search ends at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from planner.errors import InfeasibleError, UsageError
from planner.graph.task_graph import CommCosts, Schedule, TaskGraph
from planner.schedule.beam import Taste, beam
from planner.schedule.bounds import lower_bound_ns
from planner.schedule.dcp import dcp
from planner.schedule.essential import essential
from planner.schedule.etf import etf
from planner.schedule.genetic import evolve
from planner.schedule.heft import heft
from planner.schedule.lists import one_device, require_devices
from planner.schedule.memory import device_need
from planner.schedule.mp_dps import mp_dps
from planner.schedule.peft import peft
from planner.schedule.ready_dcp import ready_dcp
from planner.schedule.tabu import tabu
from planner.schedule.timeline import mean_costs, problem
from planner.schedule.windows import improve_windows

Scheduler = Callable[..., Schedule]

# Tasks and edges visited by the search: about 60 ns each, all told.
WORK: Final = {"quick": 300_000, "normal": 1_200_000, "thorough": 40_000_000}
# The same for graphs that are improved window by window.
WINDOW_WORK: Final = {"quick": 2_000_000, "normal": 20_000_000, "thorough": 1_500_000_000}
# With thorough effort graphs of more than the usual size get up to so many times the work.
USUAL: Final = 60
MOST_MORE: Final = 65
# Schedulers in O((tasks + edges) devices), or nearly; and those that need more, with the most tasks they are run on.
_FAST: Final[tuple[Scheduler, ...]] = (heft,)
_SLOW: Final[tuple[tuple[Scheduler, int], ...]] = ((dcp, 2_000), (peft, 20_000), (etf, 20_000), (mp_dps, 20_000))
# The search starts from this many of the best, and shares the work out among them.
STARTS: Final = 2
# Above so many tasks lists are too long to be crossed; above so many, search is window by window.
MOST_LISTS: Final = 400
# Larger graphs are scheduled in one pass: a window costs a pass over all tasks. Times devices, squared: what looking
# ahead to a child on every device costs.
MOST_WINDOWS: Final = 30_000
MOST_LOOKAHEAD: Final = 100_000_000
# Beam search: visits of the best taste, of graphs of the least size; every taste gets an eighth of them first. With the
# square of the size up to so many times as much.
BEAM_WORK: Final = {"quick": 60_000, "normal": 250_000, "thorough": 8_000_000}
LEAST_BEAM: Final = 50
MOST_BEAM: Final = {"quick": 1, "normal": 1, "thorough": 40}
MOST_STATES: Final = 4_000_000
# How many times narrower the first beams are, and the least width that tells tastes apart.
NARROW: Final = 8
LEAST_NARROW: Final = 4
# Where delays count much, inputs taken as they come; where they do not, urgent tasks first.
TASTES: Final = (Taste(16, 0), Taste(16, 16), Taste(16, 80))
# Handling a list, in visits; and how much more work goes into lists where they are the better search.
LIST_VISITS: Final = 20_000
LISTS: Final = 6
WHOLE: Final = 300


def auto(
    graph: TaskGraph,
    comm: CommCosts,
    *,
    memory_limit: Sequence[int] | None = None,
    effort: str = "normal",
    seed: int = 0,
) -> Schedule:
    """Schedule as well as the effort allows.

    Args:
        graph: tasks and edges.
        comm: transfer costs.
        memory_limit: bytes a device. None for no limit.
        effort: ``quick``, ``normal`` or ``thorough``: see :data:`WORK`.
        seed: of the random choices.

    Raises:
        InfeasibleError: if the weights do not fit.
        UsageError: if there is no device or no such effort.
    """
    if effort not in WORK:
        raise UsageError(f"no effort '{effort}'", expected=", ".join(WORK))
    require_devices(graph)
    target = lower_bound_ns(graph)
    found = _rivals(graph, comm, memory_limit, effort, target)
    best = found[0]
    if best.makespan_ns <= target:
        return best
    if graph.num_tasks <= MOST_LISTS:
        share = LISTS if _delays_are_small(graph, comm) else 1
        children = share * WORK[effort] // 2 // (8 * _list_visits(graph, comm) + LIST_VISITS)
        best = evolve(graph, comm, found, children=children, target_ns=target, seed=seed, memory_limit=memory_limit)
    if graph.num_tasks > MOST_WINDOWS:
        return best
    if graph.num_tasks > WHOLE:
        work = WINDOW_WORK[effort]
        return improve_windows(graph, comm, best, work=work, target_ns=target, seed=seed, memory_limit=memory_limit)
    steps = _moves(graph, comm, effort) // STARTS
    for number, start in enumerate([best, *found][:STARTS]):
        if best.makespan_ns > target:
            improved = tabu(
                graph, comm, start, steps=steps, target_ns=target, seed=seed + number, memory_limit=memory_limit
            )
            best = min(best, improved, key=lambda schedule: schedule.makespan_ns)
    return best


def _rivals(
    graph: TaskGraph, comm: CommCosts, memory_limit: Sequence[int] | None, effort: str, target_ns: int
) -> list[Schedule]:
    """What to start from, shortest first: fast schedulers, then beam searches; just one if it meets the target.

    Raises:
        InfeasibleError: if the weights do not fit.
    """
    found: list[Schedule] = []
    for scheduler in starters(graph):
        try:
            found.append(scheduler(graph, comm, memory_limit=memory_limit))
        except InfeasibleError:
            continue
        if found[-1].makespan_ns <= target_ns:
            return found[-1:]
    if not found:
        return [heft(graph, comm, memory_limit=memory_limit)]  # says what is lacking
    free = graph.num_tasks <= MOST_WINDOWS and memory_limit is None and not _has_wishes(graph)
    for schedule in _beams(graph, comm, _beam_width(graph, effort) if free else 0, target_ns):
        found.append(schedule)
        if schedule.makespan_ns <= target_ns:
            return found[-1:]
    return sorted(found, key=lambda schedule: schedule.makespan_ns)


def _moves(graph: TaskGraph, comm: CommCosts, effort: str) -> int:
    """Tasks taken out by tabu search: more in larger graphs, where the same number finds less."""
    more = min(MOST_MORE, max(1, graph.num_tasks**4 // USUAL**4))
    return WORK[effort] // 2 * (more if effort == "thorough" else 1) // visits_of(graph, comm)


def _beams(graph: TaskGraph, comm: CommCosts, width: int, target_ns: int) -> Iterator[Schedule]:
    """Beam searches: which taste suits a graph shows in narrow ones; the best of them gets the whole width."""
    narrow = width // NARROW
    if narrow < LEAST_NARROW:
        tastes = list(TASTES) if width > 1 else []
    else:
        tried = [(beam(graph, comm, taste=taste, width=narrow, target_ns=target_ns), taste) for taste in TASTES]
        yield from (schedule for schedule, _ in tried)
        tastes = [min(tried, key=lambda found: found[0].makespan_ns)[1]]
    for taste in tastes:
        yield beam(graph, comm, taste=taste, width=width, target_ns=target_ns)


def _has_wishes(graph: TaskGraph) -> bool:
    return graph.allowed is not None or graph.together is not None


def _beam_width(graph: TaskGraph, effort: str) -> int:
    """States that beam search may keep: what it visits for one of them at every task is measured."""
    n, devices = graph.num_tasks, graph.num_devices
    work = BEAM_WORK[effort] * min(MOST_BEAM[effort], max(1, n**2 // LEAST_BEAM**2))
    return min(work // (max(n, 1) * (n // 16 + 2 * devices + 25)), MOST_STATES // max(n, 1))


def _delays_are_small(graph: TaskGraph, comm: CommCosts) -> bool:
    """Whether delays count little beside the work: then lists find more than moves of single tasks."""
    task_ns, edge_ns = mean_costs(problem(graph, comm))
    return int(edge_ns.sum()) * 20 < int(task_ns.sum())


def _list_visits(graph: TaskGraph, comm: CommCosts) -> int:
    """What decoding one list looks at."""
    return (graph.num_tasks + len(essential(problem(graph, comm)).nbytes)) * (graph.num_devices + 1) // 4 + 1


def visits_of(graph: TaskGraph, comm: CommCosts) -> int:
    """What one step of the search looks at: tasks, edges, and places on devices."""
    edges = len(essential(problem(graph, comm)).nbytes)
    return 2 * graph.num_tasks + edges + graph.num_devices + 1


def starters(graph: TaskGraph) -> list[Scheduler]:
    """Schedulers to start from: those that a graph of this size allows."""
    slow = [scheduler for scheduler, most in _SLOW if graph.num_tasks <= most]
    ahead = [ready_dcp] if graph.num_tasks * graph.num_devices**2 <= MOST_LOOKAHEAD else []
    return [*_FAST, *ahead, *slow, on_one_device]


def on_one_device(graph: TaskGraph, comm: CommCosts, *, memory_limit: Sequence[int] | None = None) -> Schedule:
    """All tasks on the device that is fastest alone and has the memory.

    Raises:
        InfeasibleError: if none has.
        UsageError: if there is no device.
    """
    require_devices(graph)
    total = graph.compute_ns.sum(axis=0).tolist()
    need = 0 if memory_limit is None else device_need(graph, [0] * graph.num_tasks)[0]
    for device in sorted(range(graph.num_devices), key=lambda device: (total[device], device)):
        schedule = one_device(graph, device)
        if graph.allowed is not None and not graph.allowed[:, device].all():
            continue
        if memory_limit is None or need <= memory_limit[device]:
            return schedule
    raise InfeasibleError("no device may and can hold the whole graph", next_step="use another planner, or more memory")
