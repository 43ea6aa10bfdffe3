"""gcc compiles a large file; the object file must be identical to that of a native run."""
from support import SCALE, SHARES, SystemTest, expand, main, require, sha256_of, variations

HEADERS = """arpa/inet.h assert.h complex.h ctype.h dirent.h dlfcn.h errno.h fcntl.h fenv.h ftw.h glob.h grp.h inttypes.h
langinfo.h limits.h locale.h math.h netdb.h netinet/in.h poll.h pthread.h pwd.h regex.h sched.h search.h semaphore.h
setjmp.h signal.h spawn.h stdio.h stdlib.h string.h sys/epoll.h sys/mman.h sys/socket.h sys/stat.h sys/uio.h sys/wait.h
termios.h time.h unistd.h wchar.h wctype.h x86intrin.h""".split()
FUNCTIONS = 500
FUNCTION = """
struct item{n} {{ struct item{n} *next; char name[{size}]; long values[{count}]; }};
long visit{n}(struct item{n} *item, const char *name, long seed) {{
  long sum = seed * {n}L;
  for (; item; item = item->next) {{
    if (strncmp(item->name, name, sizeof item->name)) continue;
    for (int i = 0; i < {count}; i++) {{
      switch ((item->values[i] ^ sum) % {cases}) {{
        case 0: sum += item->values[i] * {n}L; break;
        case 1: sum ^= item->values[(i + {n}) % {count}] << (i % 13); break;
        case 2: sum -= strtol(item->name + i % {size}, 0, 10); break;
        default: sum = sum * 31 + i;
      }}
    }}
  }}
  return sum{call};
}}
"""


@expand
class GccTest(SystemTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.gcc = require("gcc")
        with open(cls.folder / "large.c", "w", encoding="utf8") as file:
            file.write("#define _GNU_SOURCE\n" + "".join(f"#include <{header}>\n" for header in HEADERS))
            for n in range(int(FUNCTIONS * SCALE)):
                call = f" + visit{n - 1}(0, name, sum)" if n else ""
                file.write(FUNCTION.format(n=n, size=8 + n % 57, count=2 + n % 9, cases=3 + n % 5, call=call))

    def compile(self, runner):
        runner([self.gcc, "-O1", "-g", "-w", "-c", "large.c", "-o", "large.o"])
        digest = sha256_of(self.folder / "large.o")
        (self.folder / "large.o").unlink()
        return digest

    @variations(SHARES)
    def test_object_file(self, variation):
        expected = self.once("native", lambda: self.compile(self.native))
        self.assertEqual(self.compile(lambda command: self.far(variation, command)), expected)


if __name__ == "__main__":
    main()
