"""The `kibitz` command; `python -m kibitz` is the same."""

from __future__ import annotations

import threading

from kibitz.core.system import interrupt


def main() -> None:
    """Runs the command. Ctrl-C ends it within a second, even while it imports or compiles."""
    own = threading.active_count() + 1
    try:
        interrupt.watch()
        from kibitz.cli import main as run

        run()
    except KeyboardInterrupt:  # before `run` could handle it
        interrupt.finishing()
        interrupt.stop_now()
    except Exception:
        if interrupt.arrived():
            interrupt.finishing()
            interrupt.stop_now()
        raise
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
        if code == interrupt.EXIT_CODE or threading.active_count() > own:
            interrupt.exit_now(code)  # a thread may be compiling
        raise


if __name__ == "__main__":
    main()
