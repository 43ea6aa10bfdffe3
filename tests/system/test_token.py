"""The token of a run: every process of the run has it, and nobody else sees it."""
import json
import os
import shutil
import unittest

from support import PYTHON, SMALL, expand, main, run, tail, variations
from test_servers import TOKEN, Servers

HELLO = "print('hello')"
STARTS = {
    "subprocess": f"import subprocess; subprocess.run([{PYTHON!r}, '-c', {HELLO!r}], close_fds=True, check=True)",
    "exec after closing all": f"import os; os.closerange(3, 70000); os.execv({PYTHON!r}, ['python3', '-c', {HELLO!r}])",
    "posix_spawn": f"import os; os.waitpid(os.posix_spawn({PYTHON!r}, ['python3', '-c', {HELLO!r}], os.environ), 0)",
    # What closes the descriptors is libc, in a child where Farside's code does not run.
    "posix_spawn with closefrom": f"""
import ctypes, os
libc, pid, actions = ctypes.CDLL(None), ctypes.c_int(), ctypes.create_string_buffer(128)
words = [b'python3', b'-c', {HELLO!r}.encode(), None]
variables = [f'{{name}}={{value}}'.encode() for name, value in os.environ.items()] + [None]
assert libc.posix_spawn_file_actions_init(actions) == 0
assert libc.posix_spawn_file_actions_addclosefrom_np(actions, 3) == 0
assert libc.posix_spawn(ctypes.byref(pid), {PYTHON.encode()!r}, actions, None, (ctypes.c_char_p * 4)(*words),
                        (ctypes.c_char_p * len(variables))(*variables)) == 0
os.waitpid(pid.value, 0)
""",
}
FORKS = "import os, sys; child = os.fork() or os.execv(sys.argv[1], sys.argv[1:]); os.waitpid(child, 0)"
SPAWNS = "import os, sys; os.waitpid(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)"


@expand
class TokenTest(Servers):
    def far(self, variation, *program):
        """The output of a program over a server, and the number of its processes with far memory."""
        _, address = self.serve()
        stats = self.folder / f"{self.id().rsplit('.', 1)[-1]}.json"
        result = run(self.client(variation, address, *program, options=(f"--stats=json:{stats}",)), seconds=60)
        self.assertEqual((result.status, result.errors), (0, b""), tail(result.errors))
        return result.output.decode(), len(json.loads(stats.read_text())["processes"])

    @variations(SMALL)
    def test_it_is_in_no_environment(self, variation):
        shown, _ = self.far(variation, PYTHON, "-c", "import os; print(open('/proc/self/environ').read(), flush=True); "
                            "os.execv('/bin/cat', ['cat', '/proc/self/environ'])")
        self.assertEqual(shown.count("FARSIDE_RUN_FD="), 2)
        self.assertNotIn(TOKEN, shown)

    @variations(SMALL)
    def test_programs_that_are_started_have_far_memory(self, variation):
        for name, start in STARTS.items():
            with self.subTest(name):
                processes = 1 if name.startswith("exec") else 2
                self.assertEqual(self.far(variation, PYTHON, "-c", start), ("hello\n", processes))

    def test_the_program_does_not_see_it(self):
        shown, _ = self.far(SMALL[0], "/bin/ls", "-l", "/proc/self/fd")
        self.assertNotIn("farside", shown)

    def test_programs_outside_of_the_run_do_not_inherit_it(self):
        for start in (FORKS, SPAWNS):
            shown, _ = self.far(SMALL[0], PYTHON, "-c", start, "/usr/bin/env", "-i", "/bin/ls", "-l", "/proc/self/fd")
            self.assertIn("/proc/", shown)
            self.assertNotIn("farside", shown)

    @unittest.skipUnless(os.geteuid() == 0, "only root can make such a program")
    def test_privileged_programs_do_not_inherit_it(self):
        privileged = self.folder / "ls"
        shutil.copy("/bin/ls", privileged)
        privileged.chmod(0o4755)
        for start in (FORKS, SPAWNS):
            shown, _ = self.far(SMALL[0], PYTHON, "-c", start, privileged, "-l", "/proc/self/fd")
            self.assertIn("/proc/", shown)
            self.assertNotIn("farside", shown)

    @unittest.skipUnless(os.geteuid() == 0, "only root can change its user")
    @variations(SMALL)
    def test_programs_of_another_user_have_far_memory(self, variation):
        start = f"import os; os.setgid(65534); os.setuid(65534); {STARTS['subprocess']}"
        self.assertEqual(self.far(variation, PYTHON, "-c", start), ("hello\n", 2))


if __name__ == "__main__":
    main()
