"""The one door to numba.

Kernels are plain typed Python functions over numpy arrays. :func:`kernel` compiles one on its first call, so that
importing a scheduler (for ``fddps --help``, say) does not import numba. Machine code is cached inside the
package, or in the user's cache folder, or, where neither can be written, not at all.

numba renews a cached kernel when its own file changes, not when a kernel that it calls does, which is inlined in it. So
the cache is in a folder named by the contents of all files that have kernels (numba's own fall-back is not).

Compiling all that a plan needs takes long enough to look like a hang. Who sets :data:`on_compiling` is told once, when
that begins.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast

_PACKAGE: Final = Path(__file__).resolve().parent.parent
_WITH_KERNELS: Final = ("graph", "schedule", "simulate")

_LONG: Final = "compiling kernels, once: about a minute"
_ALWAYS: Final = "compiling kernels, which no folder could be found to keep: about a minute (set NUMBA_CACHE_DIR)"

on_compiling: Callable[[str], None] | None = None
"""Called with a line for people when kernels are about to be compiled and none are cached; at most once."""

P = ParamSpec("P")
R = TypeVar("R")


class LazyKernel(Generic[P, R]):
    """A function that numba compiles when it is first called."""

    def __init__(self, function: Callable[P, R]) -> None:
        self.python = function
        self._compiled: dict[bool, Callable[P, R]] = {}

    def compiled(self, *, inner: bool = False) -> Callable[P, R]:
        """The numba dispatcher; made once.

        Args:
            inner: for calls from other kernels only. The wrapper that takes arguments from Python apart, dozens of
                arrays in tuples, costs more to compile than most kernels.
        """
        if inner not in self._compiled:
            self._compiled[inner] = _compile(cast(FunctionType, self.python), inner)
        return self._compiled[inner]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the compiled function."""
        return self.compiled()(*args, **kwargs)


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function with numba on first use; it may call other kernels.

    Args:
        function: takes and returns arrays, numbers and (named) tuples of these.
    """
    return LazyKernel(function)


def _compile(function: FunctionType, inner: bool) -> Callable[..., Any]:
    """``numba.njit`` with the kernels that ``function`` names replaced by their dispatchers."""
    import numba  # type: ignore[import-untyped,unused-ignore]

    _listen()
    scope = dict(function.__globals__)
    for name in function.__code__.co_names:
        if isinstance(scope.get(name), LazyKernel):
            scope[name] = scope[name].compiled(inner=True)
    resolved = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
    # The cache goes by names: one entry for calls from Python, one for calls from kernels.
    resolved.__qualname__ = f"{function.__qualname__}{'.inner' if inner else ''}"
    resolved.__module__ = function.__module__
    flags: Any = {"no_cfunc_wrapper": True, "no_cpython_wrapper": inner}
    try:
        with _caching_in(numba.config):
            return cast(Callable[..., Any], numba.njit(cache=True, **flags)(resolved))
    except RuntimeError:  # no folder that numba could write its cache to
        return cast(Callable[..., Any], numba.njit(**flags)(resolved))


@functools.cache
def _listen() -> None:
    """Has numba say when it begins to compile: only it knows whether what it has cached can be used."""
    from numba.core import event  # type: ignore[import-untyped,unused-ignore]

    class Listener(event.Listener):  # type: ignore[misc,unused-ignore]
        def on_start(self, event: Any) -> None:
            about_to_compile(event.data["dispatcher"].stats.cache_path)

        def on_end(self, event: Any) -> None:
            pass

    event.register("numba:compile", Listener())  # type: ignore[no-untyped-call,unused-ignore]


def about_to_compile(cache_path: str | None) -> None:
    """Tell who wants to know, unless some kernels are cached already: what is missing then takes seconds.

    Args:
        cache_path: the folder where numba keeps the kernels of one source file; None if it keeps none.
    """
    global on_compiling
    tell, on_compiling = on_compiling, None
    if tell is None:
        return
    if cache_path is None:
        tell(_ALWAYS)
        return
    folder = Path(cache_path)
    folder = next((parent for parent in folder.parents if parent.name == cache_name()), folder)
    if not any(folder.rglob("*.nbi")):
        tell(_LONG)


@functools.cache
def cache_name() -> str:
    """Name of the folder for compiled kernels of this very source code."""
    digest = hashlib.sha256()
    for folder in _WITH_KERNELS:
        for path in sorted((_PACKAGE / folder).glob("*.py")):
            digest.update(path.read_bytes())
    return f"kernels-{digest.hexdigest()[:16]}"


@contextmanager
def _caching_in(config: Any) -> Iterator[None]:
    """Has numba keep what is decorated meanwhile in a folder of that name, inside the package or where users say."""
    before = config.CACHE_DIR
    config.CACHE_DIR = str(Path(before or _PACKAGE / "__pycache__") / cache_name())
    try:
        yield
    finally:
        config.CACHE_DIR = before
