"""How threads share a kernel without the GIL: a board in memory says what is to be done.

The thread that leads fills the board in, opens it and works; those that serve look at it in a short loop, step in while
it is open, take chunks, and step out. The leader closes the board and waits until nobody is within. So a call reaches
threads that have just worked within a microsecond, where waking them takes thirty to fifty.

The board is an array of int64. KERNEL: the address of a kernel as ``chunks`` makes them (see ``compiler.address_of``),
followed by its five operands, the size of a chunk and the end. Who leads is settled here too: Python may be interrupted
(Ctrl-C) after it took the lead and before it is bound to give it back.
"""

from __future__ import annotations

from typing import Any

from aclnn.kernels.cpu.addresses import attempt, load_one_int64, raise_again
from aclnn.kernels.cpu.atomics import fetch_add, give_way, look, pause, show
from aclnn.kernels.cpu.chunks import Loop
from aclnn.kernels.cpu.inner import register_jitable

(OPEN, WITHIN, BELL, NEXT, LEADERS, RAISED, KERNEL, A, B, C, D, E, STEP, END, FIELDS) = range(15)
"""OPEN: the serial number of the work at hand, 0 for none. WITHIN: how many threads have stepped in. BELL: changes when
serving threads are wanted for something else. NEXT: the first element, or tile, that nobody has begun. LEADERS: 1 while
somebody leads, more while others try. RAISED: an exception of the kernel, 0 for none."""


@register_jitable
def _work(board: int) -> None:
    """Take part; after an exception nobody begins anything more."""
    raised = attempt(
        load_one_int64(board + 8 * KERNEL),
        load_one_int64(board + 8 * A),
        load_one_int64(board + 8 * B),
        load_one_int64(board + 8 * C),
        load_one_int64(board + 8 * D),
        load_one_int64(board + 8 * E),
        board + 8 * NEXT,
        load_one_int64(board + 8 * STEP),
        load_one_int64(board + 8 * END),
    )
    if raised:
        show(board + 8 * RAISED, raised)
        show(board + 8 * NEXT, load_one_int64(board + 8 * END))


@register_jitable
def _wait(patience: int, rest: int) -> int:
    """Let a moment pass between two looks: from ``patience`` 0 on by the system function at ``rest``; what is left."""
    if patience > 0:
        pause()
        return patience - 1
    give_way(rest)
    return 0


def lead() -> Any:
    """Do the work together with those who serve, and return 1 when they are done; 0 at once if somebody else leads.

    After ``patience`` looks the system function at the address ``rest`` is called between two looks. The wait is
    compiled because Python would interrupt it (Ctrl-C) while the others still write. An exception of the kernel, on
    whichever thread, is raised when all have stepped out.
    """

    def lead(
        board: int, serial: int, patience: int, rest: int,
        kernel: int, a: int, b: int, c: int, d: int, e: int, step: int, end: int,
    ) -> int:  # fmt: skip
        if fetch_add(board + 8 * LEADERS, 1) != 0:
            fetch_add(board + 8 * LEADERS, -1)
            return 0
        for i, number in enumerate((kernel, a, b, c, d, e, step, end)):
            show(board + 8 * (KERNEL + i), number)
        show(board + 8 * NEXT, 0)
        show(board + 8 * RAISED, 0)
        show(board + 8 * OPEN, serial)
        _work(board)
        show(board + 8 * OPEN, 0)
        while look(board + 8 * WITHIN) > 0:
            patience = _wait(patience, rest)
        raised = look(board + 8 * RAISED)
        fetch_add(board + 8 * LEADERS, -1)
        raise_again(raised)
        return 1

    return lead


def serve() -> Loop:
    """Step in whenever the board is open, until it was closed for ``patience`` looks or the bell has rung.

    A thread that finds nothing left to do waits for the leader to close the board as ``lead`` waits.
    """

    def serve(board: int, bell: int, patience: int, rest: int) -> None:
        left = patience
        while left > 0 and look(board + 8 * BELL) == bell:
            serial = look(board + 8 * OPEN)
            if serial:
                # Whoever is counted within before the board closes may read it: the leader waits.
                fetch_add(board + 8 * WITHIN, 1)
                if look(board + 8 * OPEN) == serial:
                    _work(board)
                fetch_add(board + 8 * WITHIN, -1)
                left = patience
                while look(board + 8 * OPEN) == serial:
                    left = _wait(left, rest)
                left = patience
            pause()
            left -= 1

    return serve
