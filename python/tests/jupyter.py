"""The kernel under Farside, as Jupyter uses it: installed, started, interrupted, restarted, ended."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import start_new_kernel

SECONDS = 60
# A program that starts the kernel, prints the process ID of its launcher, and waits to be killed.
JUPYTER = """
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="farside")
print(manager.provisioner.pid, flush=True)
input()
"""


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class KernelTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        os.environ |= {"JUPYTER_PATH": f"{folder.name}/share/jupyter", "IPYTHONDIR": f"{folder.name}/ipython"}

    def install(self, *options, status=0):
        command = [sys.executable, "-m", "farside.kernel", "install", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout + done.stderr

    def wait_for_end(self, pid):
        for _ in range(100 * SECONDS):
            if not is_running(pid):
                return
            time.sleep(0.01)
        self.fail(f"process {pid} has not ended")

    def execute(self, client, code):
        """What the cell prints."""
        printed = []

        def collect(message):
            if message["msg_type"] == "stream":
                printed.append(message["content"]["text"])
        reply = client.execute_interactive(code, timeout=SECONDS, output_hook=collect)
        self.assertEqual(reply["content"]["status"], "ok", reply)
        return "".join(printed)

    def start(self):
        manager, client = start_new_kernel(kernel_name="farside", startup_timeout=SECONDS)
        self.addCleanup(manager.shutdown_kernel, now=True)
        self.addCleanup(client.stop_channels)
        return manager, client

    def test_the_kernel_runs_cells_in_far_memory(self):
        self.install("--prefix", self.folder, "--local", "64M")
        manager, client = self.start()
        code = "import farside, os; print(farside.is_active(), farside.limit() >> 20, os.getpid())"
        *state, process = self.execute(client, code).split()
        self.assertEqual(state, ["True", "64"])
        self.assertEqual(self.execute(client, "%load_ext farside"), "")
        self.execute(client, "array = farside.full(12 << 20, 1.0)")
        self.assertRegex(self.execute(client, "%%far\nprint(array.sum())"), r"^12582912.0\n.* pages fetched, .*of 64.0 MiB, far")
        client.execute("print('begun', flush=True)\nwhile True: pass")
        while client.get_iopub_msg(timeout=SECONDS)["content"].get("text") != "begun\n":
            pass
        manager.interrupt_kernel()
        while (reply := client.get_shell_msg(timeout=SECONDS))["content"]["status"] == "ok":
            pass
        self.assertEqual(reply["content"]["ename"], "KeyboardInterrupt")
        self.assertEqual(self.execute(client, "print(int(array[-1]))"), "1\n")
        manager.restart_kernel()
        client.wait_for_ready(timeout=SECONDS)
        self.wait_for_end(process)
        new = self.execute(client, "import os; print('array' in dir(), os.getpid())").split()
        self.assertEqual(new[0], "False")
        manager.shutdown_kernel()
        self.wait_for_end(new[1])

    def test_the_kernel_ends_with_jupyter(self):
        self.install("--prefix", self.folder)
        with subprocess.Popen([sys.executable, "-c", JUPYTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as jupyter:
            launcher = jupyter.stdout.readline().strip()
            [kernel] = Path(f"/proc/{launcher}/task/{launcher}/children").read_text(encoding="utf-8").split()
            self.assertTrue(is_running(launcher) and is_running(kernel))
            jupyter.send_signal(signal.SIGKILL)
        self.wait_for_end(kernel)
        self.wait_for_end(launcher)

    def test_the_specification_has_the_options(self):
        self.install("--prefix", self.folder, "--local", "2G", "--far", "tcp://host:7000", "--token-file", "/a b", "--name", "other",
                     "--display-name", "Far")
        spec = KernelSpecManager().get_kernel_spec("other")
        self.assertEqual(spec.argv, [sys.executable, "-m", "farside", "run", "--quiet", "--local", "2G", "--far", "tcp://host:7000",
                                     "--token-file", "/a b", "-m", "farside.kernel", "run", "-f", "{connection_file}"])
        self.assertEqual((spec.display_name, spec.language, spec.interrupt_mode), ("Far", "python", "message"))
        file = self.folder / "share/jupyter/kernels/other/kernel.json"
        self.assertEqual(json.loads(file.read_text(encoding="utf-8"))["argv"], spec.argv)

    def test_mistakes_are_refused(self):
        (self.folder / "file").touch()
        error = self.install("--prefix", self.folder / "file", status=1)
        self.assertRegex(error, "^farside: error: .*/file/share.*: Not a directory; choose another place by --prefix or --sys-prefix\n$")
        self.assertIn("invalid choice", subprocess.run([sys.executable, "-m", "farside.kernel", "remove"], capture_output=True, text=True,
                                                       check=False).stderr)


if __name__ == "__main__":
    unittest.main()
