"""The stacks of a member as operators read them."""

from sparrowmq.admin.stacks import readable_stacks

_THREADS = "/v/lib/python3.11/site-packages/sparrowmq/client/handler_threads.py"
HANDLER = (
    f'  File "{_THREADS}", line 60, in _do\n'
    "    contained(job.call)\n"
    '  File "/shop/bill.py", line 3, in handle\n'
    "    time.sleep(99)\n"
)
IDLE = f'  File "{_THREADS}", line 50, in get\n'
OWN_TASK = "task pull\n  run (/v/src/sparrowmq/client/consuming/pull_loop.py:1)\n"
MAIN = "task main\n  main (/shop/main.py:9)\n  sleep (/usr/lib/python3.11/asyncio/tasks.py:6)\n"


def test_handlers_come_first_equal_stacks_once_and_internals_are_counted() -> None:
    idle = "".join(f"thread {number}\n{IDLE}" for number in range(20))
    text = f"{OWN_TASK}{MAIN}{idle}thread 31\n{HANDLER}thread 32\n{HANDLER}"
    assert readable_stacks(text) == [
        "thread 31, and 1 more like it",
        *HANDLER.splitlines(),
        *MAIN.splitlines(),
        "21 more without code of the program: --all-stacks shows them",
    ]


def test_stacks_that_are_not_from_python_stay_unchanged() -> None:
    for text in ("it gave none", "main  TID: 1 STATE: RUNNABLE\nmain  shop.Main.run(Main.java:1)"):
        assert readable_stacks(text) == text.splitlines()
