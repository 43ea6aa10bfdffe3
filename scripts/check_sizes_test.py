#!/usr/bin/env python3
"""Tests of check_sizes.py on sources made up here."""
import tempfile
import unittest
from pathlib import Path

import check_sizes


class CheckSizesTest(unittest.TestCase):
    def problems(self, name, text):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_text(text)
            return list(check_sizes.check_file(path, name))

    def functions(self, text):
        return [(name, last - first + 1) for name, first, last in check_sizes.c_functions(text)]

    def test_long_files(self):
        self.assertEqual(self.problems("x.cc", "\n" * 500), [])
        self.assertIn("501 lines", self.problems("x.cc", "\n" * 501)[0])

    def test_long_functions(self):
        self.assertEqual(self.problems("x.cc", "void f() {\n" + "  g();\n" * 58 + "}\n"), [])
        self.assertIn("x.cc:1: f has 61 lines", self.problems("x.cc", "void f() {\n" + "  g();\n" * 59 + "}\n")[0])
        self.assertIn("x.py:1: f has 61 lines", self.problems("x.py", "def f():\n" + "    pass\n" * 60)[0])

    def test_functions_of_classes_and_namespaces(self):
        text = """
namespace a::b {
class C : public D<E> {
 public:
  C(int x) : x_(x) {}
  bool f() const {
    for (;;) {}
  }
};
template <typename T>
struct G {
  template <typename U>
  auto operator()(U u) -> decltype(u.h()) {
    return u.h();
  }
};
}  // namespace a::b
extern "C" {
static int main(int argc,
                char** argv) {
  return argc ? 0 : 1;
}
}
"""
        self.assertEqual(self.functions(text), [("C", 1), ("f", 3), ("operator()", 3), ("main", 3)])

    def test_structures_that_functions_return(self):
        self.assertEqual(self.functions("struct point f(int x) {\n  return {x};\n}\n"), [("f", 3)])

    def test_data_and_texts_are_no_functions(self):
        text = """
constexpr Row kRows[] = {
    {"a", f(1)},
    {"b", g('{')},
};
const std::vector<Case> kCases = {
    {"lambda", [](Place& p) {
       use(p);
     }},
};
asm(R"(
f: {
)");
#define MACRO(x) \\
  do {           \\
    x;           \\
  } while (0)
// void g() {
int f() { return 1'000'000; }
"""
        self.assertEqual(self.functions(text), [("f", 1)])


if __name__ == "__main__":
    unittest.main()
