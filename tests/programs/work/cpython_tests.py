"""cpython_tests.py TEST...: runs tests of CPython's own suite and prints the result of every case, sorted."""
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

run = subprocess.run([sys.executable, "-m", "test", "-q", "--junit-xml", "results.xml", *sys.argv[1:]],
                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
lines = []
for case in ElementTree.parse("results.xml").getroot().iter("testcase"):
    kinds = sorted({child.tag for child in case} & {"failure", "error", "skipped"})
    lines.append(f"{case.get('name')}: {' '.join(kinds) or case.get('result')}")
print("\n".join(sorted(lines)))
sys.stderr.buffer.write(run.stdout)
