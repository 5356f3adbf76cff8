"""New processes for tasks of `process_tasks`, without new imports."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Processes:
    """Starts processes, waits for them and kills them."""

    def __init__(self, log):
        self._log = log
        with open(log, "wb") as file:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.support.process_tasks"],
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )

    def start(self, task, **arguments):
        """Begins a task in a new process, and returns the id of that."""
        return self._ask("start", task, arguments)

    def run(self, task, **arguments):
        """Does a task in a new process."""
        assert self.wait(self.start(task, **arguments)) == 0, self.errors()

    def wait(self, process):
        """The exit status of a process, which it may take its time for."""
        return self._ask("wait", process)

    def poll(self, process):
        """The exit status of a process, or None while it runs."""
        return self._ask("poll", process)

    def kill(self, process):
        """Ends a process at once; its exit status tells whether it still ran."""
        os.kill(process, signal.SIGKILL)
        return self.wait(process)

    def errors(self):
        """The end of what the processes wrote to their standard error."""
        return self._log.read_text(errors="replace")[-3000:]

    def close(self):
        """Ends the server, which has no task any more."""
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()

    def _ask(self, *question):
        print(json.dumps(question), file=self._server.stdin, flush=True)
        answer = self._server.stdout.readline()
        assert answer, self.errors()
        return json.loads(answer)
