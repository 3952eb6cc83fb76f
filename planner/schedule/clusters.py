"""Moving tasks that long delays tie together, all at once.

Where delays are long beside the work, no single task of a group gains by leaving it: the search of ``tabu.py`` stays
where it is. Here a task of the critical path takes along what is tied to it on its device by edges with at least some
delay, drawn anew each time (grown like the clusters of edge zeroing: Sarkar, Partitioning and scheduling parallel
programs for multiprocessors, 1989). The order of all tasks stays, only their times change; a move is taken if the
schedule gets no longer, or not beyond a threshold over the best so far that falls to nothing (threshold accepting:
Dueck and Scheuer 1990).
"""

from __future__ import annotations

import numpy as np

from planner.graph.jit import kernel
from planner.graph.task_graph import I64
from planner.schedule.memory import Memory, empty, fits, place, take
from planner.schedule.random import U64, draw
from planner.schedule.timeline import Problem, transfer_ns

LARGEST = 64
"""Most tasks that move together."""


@kernel
def move_clusters(
    prob: Problem, memory: Memory, order: I64, placed: I64, moves: int, permille: int, target: int, state: U64
) -> tuple[I64, I64, int]:
    """([tasks] order, [tasks] device, length) of the best schedule found.

    Args:
        prob: the problem.
        memory: limits.
        order: [tasks] topological; the tasks of a device in their sequence.
        placed: [tasks] device.
        moves: moves tried.
        permille: how much longer than the best the schedule may be at first.
        target: stop at this length.
        state: of the random numbers.
    """
    n, devices = prob.compute.shape
    order, placed = order.copy(), placed.copy()
    held = empty(memory)
    for task in range(n):
        place(memory, held, task, placed[task])
    start, finish = np.zeros(n, np.int64), np.zeros(n, np.int64)
    length = _retime(prob, order, placed, start, finish)
    best, best_order, best_placed = length, order.copy(), placed.copy()
    tied, mark = np.empty(LARGEST, np.int64), np.zeros(n, np.int64)
    path = _path(prob, order, placed, start, finish, state)
    for move in range(moves):
        if best <= target:
            break
        task = path[draw(state) % len(path)]
        home = placed[task]
        goal = draw(state) % devices
        count_in = prob.links.in_start[task + 1] - prob.links.in_start[task]
        if count_in > 0 and draw(state) % 4 > 0:
            edge = prob.links.in_edge[prob.links.in_start[task] + draw(state) % count_in]
            goal = placed[prob.links.src[edge]]
        if goal == home:
            continue
        count = _grow(prob, placed, task, prob.nbytes[draw(state) % len(prob.nbytes)], tied, mark, move + 1)
        moved = 0
        while moved < count and fits(memory, held, tied[moved], goal):
            take(memory, held, tied[moved], home)
            place(memory, held, tied[moved], goal)
            placed[tied[moved]] = goal
            moved += 1
        new = length
        if moved == count:
            new = _retime(prob, order, placed, start, finish)
        if moved < count or new > max(length, best + best * permille * (moves - move) // (1000 * moves)):
            for k in range(moved):
                take(memory, held, tied[k], goal)
                place(memory, held, tied[k], home)
                placed[tied[k]] = home
            continue
        length = new
        if length < best:
            best, best_placed = length, placed.copy()
            best_order = order.copy()
        order = order[np.argsort(start[order], kind="mergesort")]
        path = _path(prob, order, placed, start, finish, state)
    return best_order, best_placed, best


@kernel
def _grow(prob: Problem, placed: I64, task: int, least: int, tied: I64, mark: I64, turn: int) -> int:
    """Tasks on the same device that edges of at least some size tie to a task, itself first."""
    tied[0], count, done = task, 1, 0
    mark[task] = turn
    home = placed[task]
    while done < count and count < len(tied):
        here = tied[done]
        done += 1
        for k in range(prob.links.in_start[here], prob.links.in_start[here + 1]):
            edge = prob.links.in_edge[k]
            other = prob.links.src[edge]
            if prob.nbytes[edge] >= least and placed[other] == home and mark[other] != turn and count < len(tied):
                tied[count] = other
                mark[other] = turn
                count += 1
        for k in range(prob.links.out_start[here], prob.links.out_start[here + 1]):
            edge = prob.links.out_edge[k]
            other = prob.links.dst[edge]
            if prob.nbytes[edge] >= least and placed[other] == home and mark[other] != turn and count < len(tied):
                tied[count] = other
                mark[other] = turn
                count += 1
    return count


@kernel
def _retime(prob: Problem, order: I64, placed: I64, start: I64, finish: I64) -> int:
    """Times of all tasks, each as early as its inputs and the task before it on the device allow; the length."""
    free = np.zeros(prob.compute.shape[1], np.int64)
    length = 0
    for task in order:
        device = placed[task]
        ready = free[device]
        for k in range(prob.links.in_start[task], prob.links.in_start[task + 1]):
            edge = prob.links.in_edge[k]
            src = prob.links.src[edge]
            ready = max(ready, finish[src] + transfer_ns(prob, edge, placed[src], device))
        start[task] = ready
        finish[task] = ready + prob.compute[task, device]
        free[device] = finish[task]
        length = max(length, finish[task])
    return length


@kernel
def _path(prob: Problem, order: I64, placed: I64, start: I64, finish: I64, state: U64) -> I64:
    """Tasks from the last one back, each by a random one of what it waited for."""
    n = len(order)
    before, last = np.full(n, -1, np.int64), np.full(prob.compute.shape[1], -1, np.int64)
    for task in order:
        before[task] = last[placed[task]]
        last[placed[task]] = task
    path, count = np.empty(n, np.int64), 0
    task = np.argmax(finish)
    while task >= 0:
        path[count] = task
        count += 1
        cause, causes = -1, 0
        if before[task] >= 0 and finish[before[task]] == start[task]:
            cause, causes = before[task], 1
        for k in range(prob.links.in_start[task], prob.links.in_start[task + 1]):
            edge = prob.links.in_edge[k]
            src = prob.links.src[edge]
            if finish[src] + transfer_ns(prob, edge, placed[src], placed[task]) == start[task]:
                causes += 1
                if draw(state) % causes == 0:
                    cause = src
        task = cause
    return path[:count]
