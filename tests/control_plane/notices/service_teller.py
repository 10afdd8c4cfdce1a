"""A process that does what the service does about notices, again and again, until it is killed; with a second argument, until nothing waits."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import fakes

from probing_cluster.control_plane import context, delivery
from probing_cluster.control_plane.outbox import queue
from probing_cluster.control_plane.service.tasks.people import mail, notices
from probing_cluster.core import settings
from probing_cluster.db import store as db_store


def main() -> None:
    config = settings.load(Path(sys.argv[1]))
    with db_store.Store.open(config) as store:
        service = context.Context(
            config=config, store=store, run_slurm=fakes.Sacct(), slurm=fakes.FakeSlurm()
        )
        print("ready", flush=True)
        while True:
            notices.run(service)
            mail.run(service)
            if len(sys.argv) > 2:
                delivery.flush(config, service.clock.now(), all_now=True)
                if not queue.of(config).pending():
                    return
            time.sleep(0.05)


if __name__ == "__main__":
    main()
