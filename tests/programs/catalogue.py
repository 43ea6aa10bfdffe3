"""The programs that `run` tries. README.md says how to add one.

Commands are split into words as a shell does. {work} is the folder of the scripts, {folder} that of prepared files;
{python} is the interpreter of `run`, {venv} that of the virtual environment. {far} is where `farside run` is put, if it
is not in front.
"""
import os
from dataclasses import dataclass
from typing import Callable


@dataclass(frozen=True)
class Program:
    name: str
    title: str
    command: str
    needs: str = ""  # programs, or patterns of paths; it is skipped without them. The first tells the version
    packages: str = ""  # of Debian 12
    wheels: tuple = ()
    version: str = ""  # the command that prints it; default: the first of `needs`, with --version
    versions: int = 1  # numbers of it that are shown
    prepare: str = ""  # a command that runs once, natively, in {folder}
    local: tuple = ("25%", "24M")  # the first is the one of the table
    filter: Callable = lambda output: output  # removes what differs from run to run
    seconds: int = 240
    quick: bool = False
    remark: str = ""
    fails: str = ""  # the reason of a known failure


def wheel(name, title, *wheels, **more):
    """A script work/wheels/NAME.py, for packages of the virtual environment."""
    version = f"import platform, importlib.metadata as m; print(platform.python_version(), *map(m.version, {wheels!r}))"
    return Program(name, title, f"{{venv}} -P {{work}}/wheels/{name}.py", wheels=wheels, version=f'{{venv}} -c "{version}"',
                   versions=1 + len(wheels), local=("25%", "32M"), **more)


def java(name, title, options, **more):
    return Program(name, title, f"java -Xms48m -Xmx512m {options} -cp {{folder}} Work", "java",
                   "openjdk-17-jdk-headless", **more,
                   prepare="java -m jdk.compiler/com.sun.tools.javac.Main -d {folder} {work}/Work.java")


def cpython_tests(name, title, tests, **more):
    """Tests of Debian's Python. Most need little memory, so that little is near."""
    return Program(name, title, f"/usr/bin/python3.11 {{work}}/cpython_tests.py {tests}",
                   "/usr/bin/python3.11 /usr/lib/python3.11/test/test_mmap.py", "python3.11 libpython3.11-testsuite",
                   local=("8M",), seconds=400, **more)


def chromium(name, title, options="", **more):
    command = ("chromium --headless --no-sandbox --disable-gpu --user-data-dir=profile --virtual-time-budget=20000"
               f" {options} --dump-dom file://{{work}}/page.html")
    return Program(name, title, command, "chromium", "chromium", **more)


def as_user(user, command):
    """A command as another user, if this is root. Farside is started by that user."""
    return f"runuser -u {user} -- {{far}} {command}" if os.geteuid() == 0 else command


LANGUAGES = [
    Program("node", "Node.js, a sort of 400,000 objects", "node {work}/node.js", "node", "nodejs", quick=True),
    Program("php", "PHP with extensions", "php -d memory_limit=1G {work}/work.php", "php", "php-cli", quick=True,
            remark="RTLD_DEEPBIND is ignored"),
    Program("ruby", "Ruby, sort and fork", "ruby {work}/work.rb", "ruby", "ruby"),
    Program("perl", "Perl, hashes, sort and fork", "perl {work}/work.pl", "perl", "perl"),
    Program("lua", "Lua, tables and sort", "lua5.4 {work}/work.lua", "lua5.4", "lua5.4", version="lua5.4 -v"),
    Program("luajit", "LuaJIT, the same", "luajit {work}/work.lua", "luajit", "luajit", version="luajit -v"),
    Program("r", "R, data frames and a linear model", "Rscript --vanilla {work}/work.R", "Rscript", "r-base-core"),
    Program("octave", "Octave, matrices and sort", "octave-cli --no-history {work}/work.m", "octave-cli", "octave"),
    Program("sbcl", "SBCL (Common Lisp), hash table and sort", "sbcl --script {work}/work.lisp", "sbcl", "sbcl",
            quick=True),
    Program("guile", "Guile (Scheme), the same", "guile --no-auto-compile {work}/work.scm", "guile", "guile-3.0"),
    Program("erlang", "Erlang, processes and a table", "escript {work}/work.erl", "escript", "erlang-base",
            version="dpkg-query -W -f '${Version}' erlang-base"),
    Program("prolog", "SWI-Prolog, facts and sort", "swipl {work}/work.prolog", "swipl", "swi-prolog-nox"),
    java("java-serial", "OpenJDK, serial collector", "-XX:+UseSerialGC"),
    java("java-parallel", "OpenJDK, parallel collector", "-XX:+UseParallelGC"),
    java("java-g1", "OpenJDK, G1", "-XX:+UseG1GC"),
    java("java-shenandoah", "OpenJDK, Shenandoah", "-XX:+UseShenandoahGC"),
    java("java-zgc", "OpenJDK, ZGC", "-XX:+UseZGC",
         remark="its heap is a file of shared memory that is mapped several times, and stays near"),
    java("java-300g", "OpenJDK, serial collector, `-Xmx300g`", "-XX:+UseSerialGC -Xmx300g",
         remark="reserves more than far space has"),
    Program("go", "Go with cgo", "{folder}/work", "go gcc", "golang-go gcc libc6-dev", version="go version",
            prepare="go build -o {folder}/work {work}/work.go",
            remark="signal mode only: in handler mode Go's heap is near"),
    Program("go-static", "Go, a static program: trees, collections, sockets, processes", "{folder}/static", "go", "golang-go",
            version="go version", prepare="env CGO_ENABLED=0 go build -o {folder}/static {work}/static.go", quick=True,
            remark="signal mode only"),
    Program("busybox", "BusyBox, a static program: shell, sort, gzip",
            "busybox sh -c 'busybox seq 1 400000 | busybox sort -r | busybox gzip | busybox gunzip | busybox md5sum'",
            "busybox", "busybox-static", version="busybox", remark="signal mode only"),
    Program("prometheus", "Prometheus' tools (Go): blocks made of metrics, and read again",
            "sh -c 'rm -rf blocks && promtool tsdb create-blocks-from openmetrics {folder}/metrics blocks >log && mkdir -p blocks/wal && "
            "promtool tsdb dump blocks | sort | md5sum'", "promtool", "prometheus", version="promtool --version",
            prepare="python3 {work}/metrics.py {folder}/metrics"),
    Program("rust", "Rust, threads, a hash table and a tree", "{folder}/work", "/usr/bin/rustc", "rustc",
            prepare="/usr/bin/rustc -O -o {folder}/work {work}/work.rs"),
    Program("ocaml", "OCaml, hash table and sort", "{folder}/work", "ocamlopt", "ocaml-nox gcc",
            version="ocamlopt -version", prepare="sh -c 'cp $WORK/work.ml . && ocamlopt -o work work.ml'"),
    Program("mono", ".NET (Mono), dictionaries in parallel", "mono {folder}/work.exe", "mono mcs",
            "mono-mcs mono-runtime", prepare="mcs -out:{folder}/work.exe {work}/work.cs", seconds=40, quick=True),
]

PYTHON = [
    wheel("numpy", "CPython with NumPy's wheel", "numpy"),
    wheel("scipy", "CPython with SciPy's wheel", "scipy"),
    wheel("pandas", "CPython with pandas' wheel", "pandas"),
    wheel("sklearn", "CPython with scikit-learn's wheel", "scikit-learn"),
    wheel("polars", "CPython with Polars' wheel", "polars"),
    wheel("pyarrow", "CPython with pyarrow's wheel", "pyarrow"),
    wheel("duckdb", "DuckDB, joins, sorts and windows", "duckdb"),
    wheel("matplotlib", "CPython with matplotlib's wheel", "matplotlib"),
    cpython_tests("cpython-memory", "CPython's tests: memory and containers", "test_mmap test_gc test_list test_dict"
                  " test_bytes test_memoryview test_array test_weakref test_ctypes"),
    cpython_tests("cpython-system", "CPython's tests: threads, signals, sockets", "test_threading test_signal"
                  " test_select test_selectors test_socketserver test_wait4 test_pty test_queue"),
    cpython_tests("cpython-posix", "CPython's tests: posix, fork", "test_posix test_fork1 test_posix test_fork1"),
    cpython_tests("cpython-subprocess", "CPython's tests: subprocess", "test_subprocess"),
    cpython_tests("cpython-fork", "CPython's tests: multiprocessing by fork", "test_multiprocessing_fork"),
]

COMPILERS = [
    Program("gcc", "GCC, a large C file", "gcc -O2 -S -o - {folder}/large.c", "gcc", "gcc libc6-dev",
            prepare="{python} {work}/make_source.py c 500 large.c"),
    Program("g++", "GCC, a large C++ file", "g++ -std=c++20 -O0 -S -o - {folder}/large.cc", "g++", "g++",
            prepare="{python} {work}/make_source.py c++ 25 large.cc"),
    Program("clang", "Clang, the same C++ file", "clang -std=c++20 -O0 -S -o - {folder}/large.cc", "clang",
            "clang g++", prepare="{python} {work}/make_source.py c++ 25 large.cc"),
    Program("rustc", "rustc", "/usr/bin/rustc -O --emit=asm -o - {work}/work.rs", "/usr/bin/rustc", "rustc"),
    Program("make", "GNU Make with `-j2`, GCC and ld: a tree of processes", "make -s -j2 -f {work}/tree.mk", "make g++",
            "make g++", prepare="{python} {work}/make_source.py c++ 1 part.cc"),
]

TOOLS = [
    Program("git", "Git: import, gc, fsck, log", "sh {work}/git.sh", "git", "git",
            prepare="{python} {work}/make_history.py 40 history"),
    Program("sort", "GNU sort", "sort -S 300M --parallel=2 -k3 {folder}/text", "sort", "coreutils", quick=True,
            prepare="{python} {work}/make_text.py 40 text"),
    Program("xz", "xz -6", "xz -6 -T1 -c {folder}/text", "xz", "xz-utils",
            prepare="{python} {work}/make_text.py 3 text"),
    Program("zstd", "zstd -19 --long", "zstd -19 --long=26 -T1 -q -c {folder}/text", "zstd", "zstd",
            prepare="{python} {work}/make_text.py 2 text"),
    Program("gzip", "gzip", "gzip -n -c {folder}/text", "gzip", "gzip", local=("8M",), remark="has no heap to speak of",
            prepare="{python} {work}/make_text.py 8 text"),
    Program("ffmpeg", "FFmpeg, x264 of a test pattern",
            "ffmpeg -v error -f lavfi -i testsrc2=size=1280x720:rate=25:duration=2 -c:v libx264 -preset veryfast"
            " -threads 2 -fflags +bitexact -flags:v +bitexact -f matroska -", "ffmpeg", "ffmpeg",
            version="ffmpeg -version"),
    Program("imagemagick", "ImageMagick, blur and distort",
            "convert -seed 7 -size 2000x1500 plasma: -blur 0x2 -distort Arc 60 -resize 50% ppm:-", "convert",
            "imagemagick", version="convert -version"),
    Program("ghostscript", "Ghostscript, pages at 150 dpi", "gs -q -dBATCH -dNOPAUSE -dSAFER -sDEVICE=ppmraw -r150"
            " -dMaxBitmap=200000000 -sOutputFile=%stdout {work}/drawing.ps", "gs", "ghostscript", local=("25%", "8M")),
    Program("gnuplot", "gnuplot, surfaces", "gnuplot {work}/plot.gp", "gnuplot", "gnuplot-nox"),
    Program("blender", "Blender, a scene rendered by Cycles",
            "blender -b --factory-startup --threads 2 --python-exit-code 1 --python {work}/scene.py", "blender",
            "blender", filter=lambda output: output[output.find(b"picture "):][:40]),
    Program("libreoffice", "LibreOffice Calc, a sheet of 60,000 rows",
            "sh -c 'soffice --headless --convert-to csv --outdir out $INPUT/sheet.csv >&2 && sha256sum out/sheet.csv'",
            "soffice", "libreoffice-calc-nogui",
            prepare="""sh -c 'seq 60000 | sed "s/.*/&,=A&*7,text &/" > sheet.csv'"""),
    chromium("chromium", "Chromium, headless, scripts and layout", "--no-zygote",
             remark="with `--no-zygote`; its renderer does not always leave figures"),
    chromium("chromium-zygote", "Chromium, the same, with a zygote process"),
]

SERVERS = [
    Program("sqlite", "SQLite, tables in memory", "sqlite3 :memory: '.read {work}/work.sql'", "sqlite3", "sqlite3",
            quick=True),
    Program("postgres", "PostgreSQL, load, joins and pgbench", as_user("postgres", "sh {work}/postgres.sh"),
            "/usr/lib/postgresql/*/bin/pgbench", "postgresql-15", local=("25%", "8M"),
            version="sh -c '/usr/lib/postgresql/*/bin/postgres --version'",
            remark="its buffers are shared memory, and near"),
    Program("mariadb", "MariaDB, load, joins and a check", "sh {work}/mariadb.sh", "mariadbd mariadb-install-db",
            "mariadb-server"),
    Program("redis", "Redis: 250,000 values, a snapshot by fork, restart", "sh {work}/redis.sh",
            "redis-server redis-cli", "redis-server redis-tools", prepare="{python} {work}/make_redis.py commands"),
    Program("memcached", "memcached, 300,000 values", "{python} {work}/memcached.py", "memcached", "memcached"),
    Program("nginx", "nginx: files, gzip, proxy", "sh {work}/nginx.sh", "nginx curl", "nginx-light curl",
            version="nginx -v", local=("8M",), prepare="{python} {work}/make_text.py 8 text"),
    Program("boehm", "Boehm's garbage collector, a list on a waiting thread's stack", "{folder}/collector",
            "/usr/include/gc.h gcc", "libgc-dev gcc", version="dpkg-query -W -f '${Version}' libgc-dev",
            prepare="gcc -O1 -o {folder}/collector {work}/collector.c -lgc -lpthread", quick=True),
    Program("openmpi", "Open MPI, two ranks that exchange arrays",
            "mpirun --allow-run-as-root --oversubscribe -np 2 {folder}/exchange", "mpirun mpicc", "openmpi-bin libopenmpi-dev gcc",
            prepare="mpicc -O1 -o {folder}/exchange {work}/exchange.c",
            remark="`farside run` has it copy through shared memory"),
]

PROGRAMS = [*LANGUAGES, *PYTHON, *COMPILERS, *TOOLS, *SERVERS]
