"""
``python -m envtest.serve FOLDER``: run an upstream control plane until interrupted.

Prints the path of the admin kubeconfig when everything is ready.
"""

import signal
import sys
from contextlib import suppress
from pathlib import Path

from envtest.control_plane import ControlPlane, wait_default_account


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ControlPlane(Path(sys.argv[1]).absolute()) as plane:
        plane.start()
        plane.start_controller_manager()
        wait_default_account(plane)
        sys.stdout.write(f"{plane.kubeconfig}\n")
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
