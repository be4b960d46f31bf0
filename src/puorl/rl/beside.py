"""Something done beside training: a thread that does one thing at a time."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor


class Beside:
    """Does what it is given in a thread; what comes next waits until that is done."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads
        self._last: Future[None] | None = None

    def do(self, work: Callable[[], None]) -> None:
        """Begin it, once the last thing is done; an error of that is raised here."""
        self.wait()
        self._last = self._threads.submit(work)

    def wait(self) -> None:
        """Until the last thing is done; an error of it is raised here."""
        last, self._last = self._last, None
        if last is not None:
            last.result()


@contextlib.contextmanager
def beside() -> Iterator[Beside]:
    """A thread for a while; at the end, even after an error, what it has begun is done."""
    with ThreadPoolExecutor(max_workers=1) as threads:
        made = Beside(threads)
        try:
            yield made
        except Exception:
            made.wait()  # an error in there came first
            raise
        made.wait()
